"""The errors that a user can cause: each is one sentence with the allowed values."""

import difflib
import re
from collections.abc import Iterable

_MOST = 1000
_MOST_QUOTED = 200


class ShardbenchError(Exception):
    """Base of every error that is reported as one sentence, without a traceback.

    Whatever a message quotes, as text it is one line that a terminal can show: what has no glyph is
    written as an escape, and the middle of a long text is left out.
    """

    def __str__(self) -> str:
        text = _shortened(super().__str__(), 10 * _MOST)
        text = re.sub(
            rf"(?<!\w)'[^']{{{_MOST_QUOTED},}}'(?!\w)",
            lambda found: _shortened(found[0], _MOST_QUOTED),
            text,
        )
        return printable(_shortened(text, _MOST))


class UsageError(ShardbenchError):
    """Bad input: an unknown name, a malformed file. The command line exits with 2."""


class UnknownName(UsageError):
    """A name that is not known: perhaps somebody else knows it."""


class RegistryError(ShardbenchError):
    """A family or a variant that contradicts itself or another one."""


class InfeasibleDecision(ShardbenchError):
    """A decision that cannot be carried out on the problem's topology."""


class NotApplicable(ShardbenchError):
    """A variant that has no part in a problem of its family; its cell is no failure."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """Return the error for a name that is not known, with close names or all that is allowed."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return UnknownName(f"Unknown {kind} '{name}'; did you mean {' or '.join(close)}?")
    return UnknownName(f"Unknown {kind} '{name}'; known are: {', '.join(names) or 'none'}.")


def printable(text: str) -> str:
    """Return a text with escapes for what has no glyph: control characters, half surrogates."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} ... {text[-most // 4 :]}"


def one_line(error: BaseException) -> str:
    """Return an error of somebody else's code as its type and the beginning of its text."""
    text = printable(" ".join(str(error).split()))
    if len(text) > 200:
        text = text[:200].rsplit(" ", 1)[0] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""Errors that a user can cause, each reported as one sentence."""

import difflib
import re
from collections.abc import Iterable

_MOST = 1000
_MOST_QUOTED = 200


class ShardbenchError(Exception):
    """Base of the errors that are reported as one sentence, without a traceback.

    `str` returns one printable line: it escapes unprintable characters, and replaces the middle of
    a long message or quotation by `...`.

    Attributes:
        cause_in_child: the cause of the failure of a child process that raises it.
    """

    cause_in_child = "error"

    def __str__(self) -> str:
        text = _shortened(super().__str__(), 10 * _MOST)
        text = re.sub(
            rf"(?<!\w)'[^']{{{_MOST_QUOTED},}}'(?!\w)",
            lambda found: _shortened(found[0], _MOST_QUOTED),
            text,
        )
        return printable(_shortened(text, _MOST))


class UsageError(ShardbenchError):
    """Bad input, such as an unknown name or a malformed file. The command exits with code 2."""

    cause_in_child = "usage"


class UnknownName(UsageError):
    """An unknown name. A caller may catch the error and look the name up elsewhere."""


class RegistryError(ShardbenchError):
    """A declaration of a family or variant that contradicts itself or another declaration."""


class InfeasibleDecision(ShardbenchError):
    """A plan that is invalid on the problem's topology."""


class NotApplicable(ShardbenchError):
    """A problem that a variant does not support. Its cell is `not applicable`, not failed."""

    cause_in_child = "not applicable"


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """Return the error for an unknown name, with similar known names or else all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return UnknownName(f"Unknown {kind} '{name}'; did you mean {' or '.join(close)}?")
    return UnknownName(f"Unknown {kind} '{name}'; known are: {', '.join(names) or 'none'}.")


def printable(text: str) -> str:
    """Escape the unprintable characters of a text, such as controls and lone surrogates."""
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
    """Return an exception as one line: its type, and its message in about 200 characters."""
    text = _shortened(printable(" ".join(str(error).split())), _MOST_QUOTED)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

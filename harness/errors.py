"""The errors a user can cause: each is one sentence that says what is allowed."""

import difflib
from collections.abc import Iterable


class ShardbenchError(Exception):
    """Base of every error that is reported as one sentence, without a traceback."""


class UsageError(ShardbenchError):
    """Bad input: an unknown name, a malformed file. The command line exits with 2."""


class RegistryError(ShardbenchError):
    """A family or a variant that contradicts itself or another one."""


class InfeasibleDecision(ShardbenchError):
    """A decision that cannot be carried out on the problem's topology."""


class NotApplicable(ShardbenchError):
    """A variant that has no part in a problem of its family; its cell is no failure."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is not known, with close names or all that is allowed."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return UsageError(f"Unknown {kind} '{name}'; did you mean {' or '.join(close)}?")
    return UsageError(f"Unknown {kind} '{name}'; known are: {', '.join(names) or 'none'}.")


def one_line(error: Exception) -> str:
    """Return an error of somebody else's code as its type and the beginning of its text."""
    text = " ".join(str(error).split())
    if len(text) > 200:
        text = text[:200].rsplit(" ", 1)[0] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

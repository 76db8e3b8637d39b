"""A library's code replaced by ours in this process: by one caller at a time, and undone once."""

from collections.abc import Callable
from typing import Self

from harness.contract import UsageError

_running: dict[str, "Acceleration"] = {}


class Acceleration:
    """A replacement that ends with `stop` or with the `with` block."""

    def __init__(self, subject: str, begin: Callable[[], Callable[[], None]]) -> None:
        """Call `begin`, and keep the function that it returns: it undoes the replacement.

        Raises UsageError if one with the same subject, e.g. "Experts are", has not ended.
        """
        if _running.setdefault(subject, self) is not self:
            raise UsageError(f"{subject} accelerated already; stop that one first.")
        self._subject = subject
        self._end: Callable[[], None] | None = lambda: None
        try:
            self._end = begin()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Leave all further calls to the library; the second call does nothing."""
        end, self._end = self._end, None
        if end:
            try:
                end()
            finally:
                del _running[self._subject]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

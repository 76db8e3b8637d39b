"""What a captured file says, read key by key; anything else than what is allowed is refused."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MOST_BYTES = 2**62
"""More than any memory; sums of a few of them still fit Python's and NumPy's integers."""
_MOST = 2**40
_MOST_NUMBER = 1e30


class Malformed(ValueError):
    """What a file says cannot be so; the text is a clause."""


class Fields:
    """An object of a file; `what` says in errors which one.

    Every method raises Malformed where a key is missing or holds something else.
    """

    __slots__ = ("_held", "_what")

    def __init__(self, held: Any, what: str) -> None:
        if not isinstance(held, dict):
            raise Malformed(f"{what} must be an object")
        self._held: Mapping[str, Any] = held
        self._what = what

    def held(self, key: str) -> Any:
        """Return whatever is there."""
        if key not in self._held:
            raise Malformed(f"{key} of {self._what} is missing")
        return self._held[key]

    def _wrong(self, key: str, allowed: str) -> Malformed:
        return Malformed(f"{key} of {self._what} must be {allowed}")

    def text(self, key: str, allowed: Collection[str] = ()) -> str:
        """Return a text, one of `allowed` where there are any."""
        value = self.held(key)
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise self._wrong(key, f"one of {', '.join(allowed)}" if allowed else "a text")
        return value

    def flag(self, key: str) -> bool:
        """Return true or false."""
        value = self.held(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def whole(self, key: str, least: int = 0, most: int = _MOST) -> int:
        """Return a whole number."""
        if not _is_whole(value := self.held(key), least, most):
            raise self._wrong(key, f"a whole number from {least} to {most}")
        return int(value)

    def number(self, key: str, least: float = 0.0, most: float = _MOST_NUMBER) -> float:
        """Return a finite number; whole ones stay whole."""
        value = self.held(key)
        if not _is_number(value, least, most):
            raise self._wrong(key, f"a number from {least:g} to {most:g}")
        return value  # type: ignore[no-any-return]

    def inner(self, key: str) -> "Fields":
        """Return an object."""
        return Fields(self.held(key), f"{key} of {self._what}")

    def optional(self, key: str, read: Callable[[str], T]) -> T | None:
        """Return what `read` makes of the key, or None where the file has null."""
        return None if self.held(key) is None else read(key)

    def items(self, key: str, most: int = _MOST) -> list[Any]:
        """Return a list of anything."""
        value = self.held(key)
        if not isinstance(value, list) or len(value) > most:
            raise self._wrong(key, f"a list of at most {most} items")
        return value

    def each(self, key: str, what: str, most: int = _MOST) -> Iterator["Fields"]:
        """Yield the objects of a list, called `what` and their number from 1."""
        for number, held in enumerate(self.items(key, most), start=1):
            yield Fields(held, f"{what} {number}")

    def texts(self, key: str, allowed: Collection[str] = ()) -> list[str]:
        """Return a list of texts."""
        values = self.items(key)
        if not all(isinstance(each, str) and (not allowed or each in allowed) for each in values):
            among = f" of {', '.join(allowed)}" if allowed else ""
            raise self._wrong(key, f"a list of texts{among}")
        return list(values)

    def wholes(self, key: str, least: int = 0, most: int = _MOST) -> list[int]:
        """Return a list of whole numbers."""
        values = self.items(key)
        if not all(_is_whole(each, least, most) for each in values):
            raise self._wrong(key, f"a list of whole numbers from {least} to {most}")
        return list(values)

    def numbers(self, key: str, least: float = 0.0, most: float = _MOST_NUMBER) -> list[float]:
        """Return a list of finite numbers; whole ones stay whole."""
        values = self.items(key)
        if not all(_is_number(each, least, most) for each in values):
            raise self._wrong(key, f"a list of numbers from {least:g} to {most:g}")
        return list(values)

    def rows(
        self, key: str, wholes: int, numbers: int = 0, most: int = _MOST, least: int = 0
    ) -> list[list[Any]]:
        """Return rows that have so many whole numbers, followed by so many numbers."""
        rows = self.items(key, most)
        for row in rows:
            if (
                not isinstance(row, list)
                or len(row) != wholes + numbers
                or not all(_is_whole(each, least, MOST_BYTES) for each in row[:wholes])
                or not all(_is_number(each, -_MOST_NUMBER, _MOST_NUMBER) for each in row[wholes:])
            ):
                raise self._wrong(key, f"a list of rows of {wholes + numbers} numbers")
        return rows

    def names(self) -> list[str]:
        """Return the keys of the object."""
        return list(self._held)


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most

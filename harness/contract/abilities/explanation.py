"""The types for explaining a decision: sentences and tables, and the same content as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from harness.model.errors import RegistryError

P = TypeVar("P")
D = TypeVar("D")

Value = str | float | None
"""A field of a table: a number is written with four digits, None as a dash."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a title, and remarks below it; numbers are right-aligned.

    Raise RegistryError if a row's length differs from the number of columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise RegistryError(f"Section '{self.title}' has a row without a value by column.")


@dataclass(frozen=True, slots=True)
class Question(Generic[D]):
    """A question about a decision.

    Attributes:
        rank: the rank to explain; None means the heaviest rank.
        top: the number of items to show in detail, at least 1.
        other: the name of a second variant to compare with, or an empty string.
        other_decision: the second variant's decision; None without a second variant.
        table: the table to explain; empty for the whole decision.
    """

    rank: int | None = None
    top: int = 5
    other: str = ""
    other_decision: D | None = None
    table: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation: sentences, then tables; `document` has the same content as JSON types."""

    sentences: tuple[str, ...]
    sections: tuple[Section, ...]
    document: Mapping[str, Any]


Explaining = Callable[[P, D, Question[D]], Explanation]
"""How a family explains a decision; raises UsageError for an unknown rank or table."""

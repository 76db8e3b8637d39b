"""Topologies as users write them, their traps, and the arguments of libraries for machines."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct


class TopologyTrap(Struct, frozen=True):
    """A column of a topology that misleads a planner: the effect, and the text to write instead."""

    column: str
    wrong: str
    write: str


class TopologyRow(Struct, frozen=True):
    """A topology as a user wrote it, right or wrong: the text of each field by its column.

    `where` is how messages name it. What was written as the arguments of a library has that
    `library`, and in `gpus` the number that they name.
    """

    where: str
    texts: Mapping[str, str]
    library: "LibraryTopology | None" = None
    gpus: int | None = None

    def called(self, column: str) -> str:
        """Return the user's name of a column."""
        return self.library.arguments.get(column, column) if self.library else column


@dataclass(frozen=True, slots=True)
class LibraryTopology:
    """The arguments of a library that describe machines, for `shardbench topology check`.

    Attributes:
        library: its name, for messages.
        read: reads a JSON document of its arguments, given what errors call it; raises UsageError.
        traps: finds what misleads this library alone, given a row of its arguments, the values of
            the sound columns, and the number of GPUs where that is known.
        arguments: its name of a column; it plans `gpus_per_host` as one fast domain.
        defaults: its default of a column that is left out.
        sources: the source of its rule for a column, for the checks that follow it.
    """

    library: str
    read: Callable[[bytes, str], TopologyRow]
    traps: Callable[[TopologyRow, Mapping[str, Any], int | None], Iterator[TopologyTrap]]
    arguments: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

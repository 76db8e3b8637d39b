"""The types for checking a topology: the user's text, misleading values, library arguments."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct


class TopologyTrap(Struct, frozen=True):
    """A misleading value in a topology's `column`: its effect, and the text to write instead."""

    column: str
    wrong: str
    write: str


class TopologyRow(Struct, frozen=True):
    """A topology as a user wrote it, before validation: the text of each field, by column.

    `where` is its name in messages. If the user wrote a library's arguments, `library` describes
    them, and `gpus` is the number of GPUs in them.
    """

    where: str
    texts: Mapping[str, str]
    library: "LibraryTopology | None" = None
    gpus: int | None = None

    def called(self, column: str) -> str:
        """Return the user's name of a column: the library's argument, or else the column's name."""
        return self.library.arguments.get(column, column) if self.library else column


@dataclass(frozen=True, slots=True)
class LibraryTopology:
    """The arguments of a library that describe machines, for `shardbench topology check`.

    Attributes:
        library: the library's name, for messages.
        read: parses a JSON document of the library's arguments; the second parameter is the
            document's name in errors. Raises UsageError.
        traps: finds values that mislead only this library. It takes a row of its arguments, the
            values of the valid columns, and the number of GPUs, if known.
        arguments: by column, the library's argument; it plans `gpus_per_host` as one fast domain.
        defaults: by column, the library's default.
    """

    library: str
    read: Callable[[bytes, str], TopologyRow]
    traps: Callable[[TopologyRow, Mapping[str, Any], int | None], Iterator[TopologyTrap]]
    arguments: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

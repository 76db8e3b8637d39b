"""Results files: stored cells, also those of schema 1, which had a line each."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.model.cell import SCHEMA, SHARED, Cell
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import legible, read_file
from harness.model.ids import CellId
from harness.store.keys import key_of
from harness.store.lines import Entry, Line, Store


class CellStore(Store[Cell]):
    """The cells of a results file."""

    shared = SHARED

    def __init__(self, path: Path) -> None:
        super().__init__(path, "cell", Cell, old_kind=True)

    def add_cells(self, cells: Iterable[Cell]) -> None:
        """Append cells with their keys; see `add`."""
        self.add(*(Entry(legible(str(cell.id)), cell.key, cell) for cell in cells))

    def _payload(self, value: Cell) -> dict[str, Any]:
        return {
            name: field
            for name, field in legible(value).items()
            if name not in ("id", "key") and field not in ("", [], {})
        }

    def _entry(self, line: Line) -> Entry[Cell]:
        if line.kind:
            cell = Cell.stored(line.id, line.key, line.payload)
        elif line.payload.get("schema") != SCHEMA:
            raise ValueError(f"'schema' must be {SCHEMA}")
        else:
            cell = Cell.stored(str(line.payload.get("cell")), "", line.payload)
            cell.key = str(key_of(cell.environment, cell.settings, cell.against))
        return Entry(str(cell.id), cell.key, cell)


def stored_cells(path: Path) -> CellStore:
    """Return the cells of a file; raise UsageError if it does not exist."""
    read_file(path)  # raises the reason
    return CellStore(path)


def read_cells(path: Path) -> Iterator[Cell]:
    """Return the cells of a results file in order.

    Raise UsageError if it cannot be read, or has a damaged line other than an incomplete last line,
    the only damage that a killed writer leaves.
    """
    store = stored_cells(path)
    for damage in store.damaged:
        if not damage.torn:
            raise UsageError(str(damage))
    return (entry.value for entry in store.entries)


def read_whole(path: Path) -> dict[CellId, Cell]:
    """Return the cells of a results file of one run, by id.

    Raise ShardbenchError if the file cannot be read, has no cell, has a damaged or incomplete line,
    or has two different cells with the same id.
    """
    store = stored_cells(path)
    cells: dict[CellId, Cell] = {}
    for entry in store.entries:
        if cells.setdefault(entry.value.id, entry.value) != entry.value:
            raise ShardbenchError(
                f"{path} holds the cell '{entry.id}' twice, with different contents; "
                "the results of one run can be judged."
            )
    if store.damaged:
        raise ShardbenchError(
            f"{str(store.damaged[0]).rstrip('.')}; only whole results can be judged."
        )
    if not cells:
        raise ShardbenchError(f"{path} holds no cell, so there is nothing to judge.")
    return cells

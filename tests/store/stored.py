"""Makes cells to store, and reads stored cells."""

from collections.abc import Iterable
from pathlib import Path

from harness.model.cell import Cell
from harness.model.ids import CellId
from harness.store.cells import CellStore, read_cells


def cell(variant: str = "upstream", **changes) -> Cell:
    cell_id = CellId.parse(f"embedding/{variant}@dlrm-856[tables=10,seed=1]/dgx_h100:16")
    return Cell(id=cell_id, reference="double-deepcopy", **{"status": "ok"} | changes)


def append(path: Path, cells: Iterable[Cell]) -> None:
    CellStore(path).add_cells(cells)


def variants(path: Path) -> list[str]:
    return [cell.variant for cell in read_cells(path)]

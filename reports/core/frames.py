"""Stored results as DataFrames, with a row per cell, quality, counter or phase."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.model.cell import Cell
from harness.model.declared import LEAST
from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId
from harness.store.cells import CellStore
from harness.store.lines import Damage

DIFFERENT = "different decision"
_EARLIER = (
    "Comparisons with {others} on `{problem}` are left out, because the last one there is "
    "with `{kept}`."
)
_ELSEWHERE = (
    "Cells of other machines on `{problem}` are left out, because machine {kept} measured it last."
)

_NUMBERS = (
    *("gpus", "size", "projection_s", "peak_memory_bytes", "memory_before_bytes", "budget_s"),
    *("wall_s", "cpu_s", "ratio", "ratio_low", "ratio_high", "pairs", "bound", "gap"),
    *("claim_before", "claim_after", "progress_done", "progress_total", "progress_elapsed_s"),
)
_OTHER_NUMBERS = ("projection_s", "peak_memory_bytes", "memory_before_bytes")
_TEXTS = (
    *("summary", "source", "same_as", "purpose", "reason", "verdict", "verdict_reason"),
    *("decision", "fingerprint", "size_name", "remark"),
)
_PROGRESS = ("done", "total", "elapsed_s")
_KEYS = ("cell", "family", "variant", "problem")
_QUALITY = ("name", "value", "unit", "better", "primary", "meaning")
_COUNTER = ("name", "value", "meaning", "enough")
_PHASE = ("name", "seconds", "share")


@dataclass(frozen=True, slots=True)
class Results:
    """A results file as tables.

    `cells` has a row per cell: missing text is "" and missing numbers are NaN. Times are in
    seconds. `outcome` is the verdict if the status is ok, and else the status. The ratio is NaN if
    the decision differs, so that no report calls it a speed-up. `against` is the variant that all
    cells of a problem are compared with. `machine` is the id of the machine that measured the cell,
    or "" if one machine measured all cells. `bound` is the proven bound on the first quality, and
    `gap` the distance between the two, as a share of the bound.
    `qualities`, `counters` and `phases` (CPU seconds) are long tables: a row per cell and figure.
    `records` are the cells as stored, `notes` warnings about the file.
    """

    cells: pd.DataFrame
    qualities: pd.DataFrame
    counters: pd.DataFrame
    phases: pd.DataFrame
    records: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


def read_results(path: Path) -> Results:
    """Read a JSON Lines results file; raise UsageError if it contains no cell of this schema.

    Later lines of a cell replace earlier ones. Of a problem's cells, only those with its last
    `against` variant and its last machine are kept. Damaged lines, such as a last line that a
    killed sweep cut short, are left out. `notes` reports both.
    """
    store = CellStore(path)
    damaged = store.damaged
    cells: dict[CellId, Cell] = {}
    against: dict[tuple[str, ProblemId], str] = {}
    machine: dict[tuple[str, ProblemId], str] = {}
    for cell in (entry.value for entry in store.entries):
        cells[cell.id] = cell
        against[cell.family, cell.problem] = cell.against
        if cell.environment.machine:
            machine[cell.family, cell.problem] = cell.environment.machine
    notes = [
        f"Line {line.line} of '{line.path.name}' {'was cut short' if line.torn else line.why} and "
        "is left out."
        for line in damaged
    ]
    if not cells:
        raise UsageError(f"Results file '{path}' holds no cell; {_why_empty(damaged)}.")
    notes += _keep_last(cells, against, lambda cell: cell.against, _EARLIER)
    notes += _keep_last(cells, machine, lambda cell: cell.environment.machine, _ELSEWHERE)
    machines = {cell.environment.machine for cell in cells.values()} - {None}
    several = len(machines) > 1
    if several:
        notes.append(
            f"The cells are of {len(machines)} machines; each problem is of one, and times are "
            "compared within one machine only."
        )
    found = list(cells.values())
    return Results(
        cells=_frame_of_cells([_row(cell, several) for cell in found]),
        qualities=_frame(found, _QUALITY, _qualities),
        counters=_frame(found, _COUNTER, _counters),
        phases=_frame(found, _PHASE, _phases),
        records=tuple(found),
        notes=tuple(notes),
    )


def _keep_last(
    cells: dict[CellId, Cell],
    last: Mapping[tuple[str, ProblemId], str],
    of: Callable[[Cell], str | None],
    note: str,
) -> Iterator[str]:
    """Delete cells for which `of` differs from their problem's value in `last`; yield notes."""
    for (family, problem), kept in last.items():
        others = {
            cell.id: of(cell)
            for cell in cells.values()
            if (cell.family, cell.problem) == (family, problem) and of(cell) not in (None, "", kept)
        }
        for cell_id in others:
            del cells[cell_id]
        if others:
            names = " and ".join(sorted({f"`{name}`" for name in others.values()}))
            yield note.format(others=names, problem=problem, kept=kept)


def _why_empty(damaged: Sequence[Damage]) -> str:
    if not damaged:
        return "run a sweep that writes to it first"
    if len(damaged) > 1:
        return f"its {len(damaged)} lines are damaged"
    return f"its only line {'was cut short' if damaged[0].torn else damaged[0].why}"


def _row(cell: Cell, several: bool) -> dict[str, Any]:
    """Return a cell's row in `Results.cells`, with its machine if there are `several` machines."""
    ratio, bound = cell.ratio, cell.bound
    row: dict[str, Any] = {
        **dict(zip(_KEYS, _keys(cell), strict=True)),
        "workload": str(cell.problem.workload),
        "topology": cell.problem.topology,
        "gpus": cell.problem.gpus,
        **{name: getattr(getattr(cell, name), "median", None) for name in ("wall_s", "cpu_s")},
        "ratio": ratio and ratio.value,
        **{f"ratio_{name}": getattr(ratio, name, None) for name in ("low", "high")},
        "pairs": ratio and ratio.pairs,
        **{f"claim_{name}": getattr(cell.claim, name, None) for name in ("before", "after")},
        **{f"claim_{name}": getattr(cell.claim, name, "") for name in ("unit", "conditions")},
        **{f"progress_{name}": getattr(cell.progress, name, None) for name in _PROGRESS},
        "progress_unit": cell.progress.unit if cell.progress else "",
        "budget_s": cell.settings and cell.settings.budget,
        "bound": cell.quality.get(bound.name) if bound else None,
        "gap": bound.gap(cell.quality) if bound else None,
        "machine": (cell.environment.machine or "") if several else "",
    }
    row |= {name: getattr(cell, name) for name in ("reference", "against", "status", "size")}
    row |= {name: getattr(cell, name) or "" for name in _TEXTS}
    row |= {name: getattr(cell, name) for name in _OTHER_NUMBERS}
    return row


def _frame_of_cells(rows: list[dict[str, Any]]) -> pd.DataFrame:
    cells = pd.DataFrame(rows)
    cells[list(_NUMBERS)] = cells[list(_NUMBERS)].astype("float64")
    # An upper end that is infinite, or practically so, counts as unknown.
    cells["ratio_high"] = cells["ratio_high"].where(cells["ratio_high"] <= 1 / LEAST)
    differs = cells["decision"] == "different"
    cells.loc[differs, ["ratio", "ratio_low", "ratio_high"]] = float("nan")
    outcome = cells["verdict"].where(cells["decision"] != "reference", "reference")
    outcome = outcome.where(~differs, DIFFERENT)
    cells["outcome"] = outcome.where(cells["status"] == "ok", cells["status"])
    cells.loc[cells["outcome"] == "", "outcome"] = "not compared"
    # The cell of a stopped call has no size; take the size from the problem's other cells.
    problems = cells.groupby(["family", "problem"])
    cells["size"] = problems["size"].transform("first")
    cells["size_name"] = problems["size_name"].transform("max")
    return cells


def _keys(cell: Cell) -> tuple[str, str, str, str]:
    return str(cell.id), cell.family, cell.variant, str(cell.problem)


def _frame(
    cells: Sequence[Cell],
    columns: Sequence[str],
    figures: Callable[[Cell], Iterator[tuple[Any, ...]]],
) -> pd.DataFrame:
    """Return a frame with a row for each tuple that `figures` yields for a cell."""
    rows = [(*_keys(cell), *figure) for cell in cells for figure in figures(cell)]
    return pd.DataFrame(rows, columns=[*_KEYS, *columns])


def _qualities(cell: Cell) -> Iterator[tuple[Any, ...]]:
    for place, quality in enumerate(cell.qualities):
        if (name := quality.name) in cell.quality:
            value = cell.quality[name]
            yield name, value, quality.unit, quality.better, place == 0, quality.meaning


def _counters(cell: Cell) -> Iterator[tuple[Any, ...]]:
    for name, value in cell.counters.items():
        enough = cell.counter_enough.get(name)
        if isinstance(enough, str):
            enough = cell.counters.get(enough)
        least = float("nan") if enough is None else float(enough)
        yield name, float(value), cell.counter_meanings.get(name, ""), least


def _phases(cell: Cell) -> Iterator[tuple[Any, ...]]:
    whole = sum(cell.phases.values())
    for name, spent in cell.phases.items():
        yield name, spent, spent / whole if whole else float("nan")

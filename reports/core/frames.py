"""Stored results: the cells of a file, and DataFrames with a row per cell, quality or counter."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from harness.model.cell import Cell
from harness.model.declared import LEAST
from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId
from harness.store.cells import stored_cells
from reports.core.columns import compared, median
from reports.core.formatting import plural

_TEXTS = (
    *("reference", "against", "status", "outcome", "summary", "source", "same_as", "purpose"),
    *("reason", "verdict", "verdict_reason", "decision", "fingerprint", "size_name", "remark"),
)
_NUMBERS = ("size", "projection_s", "peak_memory_bytes", "memory_before_bytes")
_KEYS = ("cell", "family", "variant", "problem")


@dataclass(frozen=True)
class Results:
    """The cells of a results file (`records`), `notes` on the file, and DataFrames for CSV files.

    A DataFrame has a row per cell, quality, counter or phase. Missing text is "" and missing
    numbers are NaN; times are in seconds.
    """

    records: tuple[Cell, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row per cell.

        `outcome` is the verdict if the status is ok, and else the status. The ratio is NaN if the
        decision differs. `against` is the variant that all cells of a problem are compared with.
        `machine` is the id of the machine that measured the cell, or "" if one machine measured
        all. `bound` is the proven bound on the first quality, `gap` the distance between the two
        as a share of the bound.
        """
        several = len({cell.environment.machine for cell in self.records} - {None}) > 1
        return pd.DataFrame([_row(cell, several) for cell in self.records])

    @cached_property
    def qualities(self) -> pd.DataFrame:
        """A row per cell and quality; `primary` marks the first quality of a family."""
        rows = [
            (*_keys(cell), name, value, quality.unit, quality.better, place == 0, quality.meaning)
            for cell in self.records
            for place, quality in enumerate(cell.qualities)
            if (value := cell.quality.get(name := quality.name)) is not None
        ]
        columns = [*_KEYS, "name", "value", "unit", "better", "primary", "meaning"]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def counters(self) -> pd.DataFrame:
        """A row per cell and counter; `enough` is a sufficient count, NaN if unknown."""
        rows = [
            (*_keys(cell), name, cell.counter_meanings.get(name, ""), value, cell.enough(name))
            for cell in self.records
            for name, value in cell.counters.items()
        ]
        frame = pd.DataFrame(rows, columns=[*_KEYS, "name", "meaning", "value", "enough"])
        return frame.astype({"value": float, "enough": float})

    @cached_property
    def phases(self) -> pd.DataFrame:
        """A row per cell and phase, with its CPU seconds and its share of all phases."""
        rows = [
            (*_keys(cell), name, seconds)
            for cell in self.records
            for name, seconds in cell.phases.items()
        ]
        frame = pd.DataFrame(rows, columns=[*_KEYS, "name", "seconds"])
        whole = frame.groupby("cell")["seconds"].transform("sum")
        return frame.assign(share=(frame["seconds"] / whole).astype(float))


_Problem = tuple[str, ProblemId]


def read_results(path: Path) -> Results:
    """Read a JSON Lines results file; raise UsageError if it contains no cell of this schema.

    Later lines of a cell replace earlier ones. Of a problem's cells, only those with its last
    `against` variant and its last machine are kept. A cell of a stopped call has no size, and gets
    that of the problem's other cells. Damaged lines, such as a last line that a killed sweep cut
    short, are left out. `notes` reports what is left out.
    """
    # 1. The last line of each cell, and what is known of its problem.
    store = stored_cells(path)
    cells: dict[CellId, Cell] = {}
    against: dict[_Problem, str] = {}
    machines: dict[_Problem, str | None] = {}
    sizes: dict[_Problem, tuple[float, str | None]] = {}
    for cell in (entry.value for entry in store.entries):
        problem = cell.family, cell.problem
        cells[cell.id] = cell
        against[problem] = cell.against
        machines[problem] = cell.environment.machine or machines.get(problem)
        if cell.size is not None:
            sizes.setdefault(problem, (cell.size, cell.size_name))
    notes = [
        f"Line {damage.line} of '{damage.path.name}' "
        f"{'was cut short' if damage.torn else damage.why} and is left out."
        for damage in store.damaged
    ]
    if not cells:
        why = " ".join(notes[:1]) or "Run a sweep that writes to it first."
        raise UsageError(f"Results file '{path}' holds no cell. {why}")
    # 2. Only cells that can be compared with each other, each with a size.
    kept, left_out = [], Counter[_Problem]()
    for cell in cells.values():
        problem = cell.family, cell.problem
        machine = cell.environment.machine
        if cell.against != against[problem] or (machine and machine != machines[problem]):
            left_out[problem] += 1
            continue
        if cell.size is None:
            cell.size, cell.size_name = sizes.get(problem, (None, cell.size_name))
        kept.append(cell)
    for problem, amount in left_out.items():
        on = f" on machine {machines[problem]}" if machines[problem] else ""
        notes.append(
            f"Left out: {plural(amount, 'cell')} of `{problem[1]}`, because the last comparison "
            f"there is with `{against[problem]}`{on}."
        )
    several = len({cell.environment.machine for cell in kept} - {None})
    if several > 1:
        notes.append(
            f"The cells are of {several} machines; each problem is of one, and times are "
            "compared within one machine only."
        )
    return Results(tuple(kept), tuple(notes))


def _row(cell: Cell, several: bool) -> dict[str, Any]:
    """Return a cell's row in `Results.cells`, with its machine if there are `several` machines."""
    ratio, bound, claim, progress = compared(cell), cell.bound, cell.claim, cell.progress
    texts = {
        **dict(zip(_KEYS, _keys(cell), strict=True)),
        "workload": str(cell.problem.workload),
        "topology": cell.problem.topology,
        **{name: getattr(cell, name) or "" for name in _TEXTS},
        "claim_unit": claim.unit if claim else "",
        "claim_conditions": claim.conditions if claim else "",
        "progress_unit": progress.unit if progress else "",
        "machine": (cell.environment.machine or "") if several else "",
    }
    numbers = {
        "gpus": cell.problem.gpus,
        **{name: getattr(cell, name) for name in _NUMBERS},
        "wall_s": median(cell.wall_s),
        "cpu_s": median(cell.cpu_s),
        "ratio": ratio and ratio.value,
        "ratio_low": ratio and ratio.low,
        # A larger end is practically infinite.
        "ratio_high": ratio.high if ratio and ratio.high <= 1 / LEAST else None,
        "pairs": ratio and ratio.pairs,
        "claim_before": claim and claim.before,
        "claim_after": claim and claim.after,
        "progress_done": progress and progress.done,
        "progress_total": progress and progress.total,
        "progress_elapsed_s": progress and progress.elapsed_s,
        "budget_s": cell.settings and cell.settings.budget,
        "bound": cell.quality.get(bound.name) if bound else None,
        "gap": bound.gap(cell.quality) if bound else None,
    }
    return texts | {n: math.nan if v is None else float(v) for n, v in numbers.items()}


def _keys(cell: Cell) -> tuple[str, str, str, str]:
    return str(cell.id), cell.family, cell.variant, str(cell.problem)

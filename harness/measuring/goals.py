"""Judge whether a family's goals are met, missed, projected or not measured."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.contract.declarations import OTHERS
from harness.model.cell import Cell, projected_speedup
from harness.model.overview import Goal, Measure
from harness.model.quality import Place, place

MIB = 2**20
# Sums of the same figures in different orders may differ by this share.
_ROUNDING = 1e-9


Outcome = Literal[
    "met",
    "missed",
    "inconclusive",
    "projected to be met",
    "projected to be missed",
    "not measured",
]

Sign = Literal["", "≥", "<", ">"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The result for a goal: `outcome`, with `value` and `limit` in `unit`, or else a `reason`.

    `low` and `high` are the interval of the value; NaN without one. If `sign` is not empty, `value`
    is only a bound: with `≥`, for example, the true value is at least `value`.
    """

    outcome: Outcome
    value: float = math.nan
    limit: float = math.nan
    unit: str = ""
    low: float = math.nan
    high: float = math.nan
    sign: Sign = ""
    reason: str = ""

    def measured(self, write: Callable[[float, str], str]) -> str:
        """Return the measurement as text; `write` formats a value with its unit."""
        if self.outcome == "not measured":
            return self.reason
        text = f"{self.sign} {write(self.value, self.unit)}".strip()
        return text + (" (projected)" if self.outcome.startswith("projected") else "")


@dataclass(frozen=True, slots=True)
class _GoalCase:
    """A goal, its variant's `cell`, the cell to compare with (`other`), and the problem's cells."""

    goal: Goal
    cell: Cell
    other: Cell | None
    other_name: str
    cells: Mapping[str, Cell]

    def stands(self, value: float, limit: float, unit: str, sign: Sign = "") -> Standing:
        """Return the standing `met` if `value` is at most `limit`, else `missed`."""
        return Standing("met" if value <= limit else "missed", value, limit, unit, sign=sign)


def standing(goal: Goal, cells: Mapping[str, Cell]) -> Standing:
    """Judge a goal by the cells of its problem; `cells` maps a variant to its cell.

    A goal `times faster` is met or missed if the whole interval of the speed-up is on one side of
    the limit, else inconclusive.
    """
    cell = cells.get(goal.variant)
    other = goal.against or ("" if goal.quality or cell is None else cell.reference)
    found = None
    if cell is not None:
        found = _MEASURES[goal.measure](_GoalCase(goal, cell, cells.get(other), other, cells))
    return found or _not_measured({goal.variant: cell, other: cells.get(other)})


def _faster(case: _GoalCase) -> Standing | None:
    cell, other, limit = case.cell, case.other, case.goal.limit
    ratio = cell.ratio
    if ratio and cell.against == case.other_name and cell.decision != "different":
        times = 1 / ratio.high, 1 / ratio.low if ratio.low else math.inf
        outcomes: dict[Place, Outcome] = {"within": "met", "below": "missed"}
        outcome = outcomes.get(place(times, (limit, math.inf)), "inconclusive")
        return Standing(outcome, 1 / ratio.value, limit, "times", *times)
    if other and (projected := projected_speedup(cell, other)):
        if projected >= limit:
            return Standing("projected to be met", projected, limit, "times", sign="≥")
        if other.progress is None or not other.progress.more_follows:
            return Standing("projected to be missed", projected, limit, "times", sign="≥")
    budget, spent = _budget(cell), _median(other)
    if budget and spent and spent / budget < limit:
        return Standing("missed", spent / budget, limit, "times", sign="<")
    return None


def _seconds(case: _GoalCase) -> Standing | None:
    limit = case.goal.limit
    if spent := _median(case.cell):
        return case.stands(spent, limit, "s")
    budget = _budget(case.cell)
    return Standing("missed", budget, limit, "s", sign=">") if budget and budget >= limit else None


def _memory(case: _GoalCase) -> Standing | None:
    """Compare peaks; the peak of an unfinished call is a lower bound on that of the whole call."""
    cell, other = case.cell, case.other
    if cell.peak_memory_bytes and other and other.peak_memory_bytes:
        value, limit = cell.peak_memory_bytes / MIB, case.goal.limit * other.peak_memory_bytes / MIB
        whole, other_is_whole = cell.status == "ok", other.status == "ok"
        if (whole and value <= limit) or (other_is_whole and value > limit):
            return case.stands(value, limit, "MiB", "" if whole else "≥")
    return None


def _quality(case: _GoalCase) -> Standing | None:
    name, limit = case.goal.quality, case.goal.limit
    value = _value(case.cell, name)
    rest = [case.other] if case.other else []
    if case.other_name == OTHERS:
        rest = [cell for variant, cell in case.cells.items() if variant != case.goal.variant]
    found = [other for cell in rest if (other := _value(cell, name)) is not None]
    if value is None or (case.other_name and not found):
        return None
    limit *= min(found) if case.other_name else 1
    unit = next((quality.unit for quality in case.cell.qualities if quality.name == name), "")
    outcome: Outcome = "met" if value <= limit * (1 + _ROUNDING) else "missed"
    return Standing(outcome, value, limit, unit)


_MEASURES: Mapping[Measure, Callable[[_GoalCase], Standing | None]] = {
    "times faster": _faster,
    "seconds": _seconds,
    "peak memory": _memory,
    "quality": _quality,
}


def _not_measured(cells: Mapping[str, Cell | None]) -> Standing:
    for name, cell in cells.items():
        if cell and cell.decision == "different":
            return Standing("not measured", reason=f"{name}: different decision")
        if name not in ("", OTHERS) and (cell is None or cell.status != "ok"):
            reason = f"{name}: {cell.status if cell else 'not run'}"
            return Standing("not measured", reason=reason)
    return Standing("not measured", reason="nothing to compare it with")


def _value(cell: Cell, quality: str) -> float | None:
    return cell.quality.get(quality) if cell.status == "ok" else None


def _median(cell: Cell | None) -> float | None:
    """Return the median wall seconds of a call; None if the cell has no times."""
    return cell.wall_s.median if cell and cell.status == "ok" and cell.wall_s else None


def _budget(cell: Cell) -> float | None:
    """Return the budget in seconds if a call was stopped over it: it took at least that long."""
    return cell.settings.budget if cell.status == "over budget" and cell.settings else None

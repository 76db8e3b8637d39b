"""Evaluate statements: what cells say of a claim, a headline or a goal, and whether it holds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.model.cell import Cell, projected_speedup
from harness.model.ids import CellId
from harness.model.quality import Place, place
from harness.model.statement import OTHERS, PEAK_MEMORY, SECONDS, TIMES_FASTER, Pair, Statement

MIB = 2**20
# Sums of the same figures in different orders may differ by this share.
_ROUNDING = 1e-9
# A published factor is the ratio of two rounded figures, mostly of one run each, on a machine and a
# problem that are only described roughly. Closer than a quarter, it cannot be reproduced.
_TOLERANCE = 1.25

Cells = Mapping[CellId, Cell]
Basis = Literal["measured", "projected", "stopped"]
Sign = Literal["", "≥", "<"]
Outcome = Literal[
    "met",
    "missed",
    "inconclusive",
    "projected to be met",
    "projected to be missed",
    "reproduced",
    "smaller",
    "larger",
    "no published figure",
    "compared",
    "not measured",
]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in `unit`, with an interval or NaN for its ends.

    If `sign` is not empty, `value` is only a bound: with `≥`, the true figure is at least `value`.
    Such a bound is `projected` from the progress of a stopped call, or is of its budget
    (`stopped`).
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    sign: Sign = ""
    basis: Basis = "measured"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the cells of a pair say of a statement.

    `figure` is None if the outcome is `not measured`, for which there is a `reason`. `limit` is the
    limit of a goal in the figure's unit, NaN if that is unknown. Headlines have no limit and are
    `compared`.
    """

    statement: Statement
    pair: Pair
    before: Cell | None
    after: Cell | None
    outcome: Outcome = "not measured"
    figure: Figure | None = None
    limit: float = math.nan
    reason: str = ""

    @property
    def value(self) -> float:
        """The value of the figure; NaN without one."""
        return self.figure.value if self.figure else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the figure; NaN without one."""
        return (self.figure.low, self.figure.high) if self.figure else (math.nan, math.nan)

    @property
    def decision(self) -> Literal["", "same", "own", "different"]:
        """Whether `after` makes the decision of `before`; "" if that is unknown."""
        before, after = self.before, self.after
        if not (before and after and before.fingerprint and after.fingerprint):
            return ""
        if before.fingerprint == after.fingerprint:
            return "same"
        return "different" if after.decision == "different" else "own"

    @property
    def is_gain(self) -> bool:
        """Whether `after` is faster, or better, than `before` beyond the interval."""
        if self.figure is None:
            return False
        if self.statement.measure == TIMES_FASTER:
            return self.value > 1 and not self.figure.low <= 1
        return gap_of(self.after) < gap_of(self.before)

    def measured(self, write: Callable[[float, str], str]) -> str:
        """Return the measurement as text; `write` formats a value with its unit."""
        if self.figure is None:
            return self.reason
        text = f"{self.figure.sign} {write(self.figure.value, self.figure.unit)}".strip()
        return text + (" (projected)" if self.figure.basis == "projected" else "")


def gap_of(cell: Cell | None) -> float:
    """Return the gap of a cell's decision to its proven bound, as a share; NaN without one."""
    return cell.bound.gap(cell.quality) if cell and cell.bound else math.nan


@dataclass(frozen=True, slots=True)
class Counts:
    """A counter before and after a change, and the count that is enough; None if unknown."""

    before: int
    after: int | None
    enough: float | None


def evaluate(statement: Statement, cells: Cells) -> Reading:
    """Return what the cells say of a statement: by its first measured pair, else by a bound."""
    readings = [_read(statement, pair, cells) for pair in statement.pairs]
    order = ("measured", "projected", "stopped", "")
    return min(readings, key=lambda found: order.index(found.figure.basis if found.figure else ""))


def counts(statement: Statement, cells: Cells) -> Counts | None:
    """Return the counter of a statement on its first counted pair; None if it has no count.

    Enough is what the family declares, or else the count of `after`.
    """
    for pair in (*statement.counted, *statement.pairs):
        before, after = _cells_of(statement, pair, cells)
        if before is None or statement.counter not in before.counters:
            continue
        reached = after.counters.get(statement.counter) if after else None
        enough = before.enough(statement.counter)
        done = before.counters[statement.counter]
        return Counts(done, reached, reached if enough is None else enough)
    return None


def speedup(before: Cell | None, after: Cell | None) -> Figure | None:
    """Return how many times as fast `after` is as `before`; None if that is unknown.

    The interval is the 99 % interval of paired calls or, of cells that were timed separately, the
    range of two or more calls. A stopped call gives a bound.
    """
    if before is None or after is None or "different" in (before.decision, after.decision):
        return None
    if after.status == "ok" and before.status == "over budget":
        if projected := projected_speedup(after, before):
            return Figure(projected, unit="times", sign="≥", basis="projected")
        if before.settings and after.wall_s and after.wall_s.median:
            least = before.settings.budget / after.wall_s.median
            return Figure(least, unit="times", sign="≥", basis="stopped")
        return None
    if after.status == "over budget" and after.settings and before.wall_s:
        most = before.wall_s.median / after.settings.budget
        return Figure(most, unit="times", sign="<", basis="stopped")
    slow, fast = before.compared_s, after.compared_s
    if not slow or not fast or not (slow.median and fast.median):
        return None
    mine, theirs = _ratio(before), _ratio(after)
    if mine and theirs and (before.problem, before.against) == (after.problem, after.against):
        # Of two that were compared with a third, the ends that are farthest apart are combined.
        high = mine[2] / theirs[1] if theirs[1] else math.inf
        return Figure(mine[0] / theirs[0], mine[1] / theirs[2], high, "times")
    value = slow.median / fast.median
    if min(len(slow.samples), len(fast.samples)) < 2:
        return Figure(value, unit="times")
    least, most = min(slow.samples) / max(fast.samples), max(slow.samples) / min(fast.samples)
    return Figure(value, least, most, "times")


def _ratio(cell: Cell) -> tuple[float, float, float] | None:
    """Return the ratio to the baseline with its interval; None if it has no interval."""
    if cell.variant == cell.against:
        return 1.0, 1.0, 1.0
    if cell.ratio is None or cell.ratio.pairs == 1 or math.isinf(cell.ratio.high):
        return None
    return cell.ratio.value, cell.ratio.low, cell.ratio.high


def _cells_of(statement: Statement, pair: Pair, cells: Cells) -> list[Cell | None]:
    """Return the cells before and after, None for those that are unknown."""
    names = (pair.before, pair.after)
    return [cells.get(statement.cell_id(pair.problem, name)) if name else None for name in names]


def _read(statement: Statement, pair: Pair, cells: Cells) -> Reading:
    before, after = _cells_of(statement, pair, cells)
    figure, scale = _measure(statement, pair, cells, before, after) if after else (None, 1.0)
    limit = next((n for n in (statement.at_least, statement.at_most) if n is not None), math.nan)
    outcome = _judge(statement, figure, scale, before) if figure else "not measured"
    if outcome == "not measured":
        reason = _why_unknown({pair.after: after, pair.before: before})
        return Reading(statement, pair, before, after, reason=reason)
    return Reading(statement, pair, before, after, outcome, figure, limit * scale)


def _measure(
    statement: Statement, pair: Pair, cells: Cells, before: Cell | None, after: Cell
) -> tuple[Figure | None, float]:
    """Return the figure of a measure, and what a limit is multiplied by: that of `before`, or 1."""
    name = statement.measure
    if name == TIMES_FASTER:
        return speedup(before, after), 1.0
    if name == SECONDS:
        if after.status == "over budget" and after.settings:
            return Figure(after.settings.budget, unit="s", sign="≥", basis="stopped"), 1.0
        is_timed = after.status == "ok" and after.wall_s
        return Figure(after.wall_s.median, unit="s") if is_timed and after.wall_s else None, 1.0
    if name == PEAK_MEMORY:
        if not (before and before.peak_memory_bytes and after.peak_memory_bytes):
            return None, 1.0
        # The peak of an unfinished call is a lower bound on that of the whole call.
        sign: Sign = "" if after.status == "ok" else "≥"
        figure = Figure(after.peak_memory_bytes / MIB, unit="MiB", sign=sign)
        return figure, before.peak_memory_bytes / MIB
    rest: list[Cell] = [before] if before else []
    if pair.before == OTHERS:
        same = (after.family, after.problem)
        rest = [c for c in cells.values() if (c.family, c.problem) == same and c.id != after.id]
    values = [c.quality[name] for c in rest if c.status == "ok" and name in c.quality]
    if after.status != "ok" or name not in after.quality or (pair.before and not values):
        return None, 1.0
    unit = next((quality.unit for quality in after.qualities if quality.name == name), "")
    return Figure(after.quality[name], unit=unit), min(values) if pair.before else 1.0


def _judge(statement: Statement, figure: Figure, scale: float, before: Cell | None) -> Outcome:
    """Return the outcome: where the figure's interval lies, relative to the limits."""
    if statement.use == "headline":
        return "compared"
    value, low, high = figure.value, figure.low, figure.high
    if statement.use == "claim":
        if statement.published is None:
            return "no published figure"
        ends = (value, value) if math.isnan(low) else (low, high)
        factor = 1 / statement.published.ratio
        outcomes: dict[Place, Outcome] = {"below": "smaller", "above": "larger"}
        return outcomes.get(place(ends, (factor / _TOLERANCE, factor * _TOLERANCE)), "reproduced")
    at_least = -math.inf if statement.at_least is None else statement.at_least * scale
    at_most = math.inf if statement.at_most is None else statement.at_most * scale
    if figure.sign:
        ends = (-math.inf, value) if figure.sign == "<" else (value, math.inf)
    elif not math.isnan(low):
        ends = (low, high)
    else:  # the time of one call has an interval that nobody knows
        ends = (0.0, math.inf) if statement.measure == TIMES_FASTER else (value, value)
    where = place(ends, (at_least * (1 - _ROUNDING), at_most * (1 + _ROUNDING)))
    if figure.basis == "projected":
        if where == "within":
            return "projected to be met"
        is_whole = before and not (before.progress and before.progress.more_follows)
        return "projected to be missed" if is_whole else "not measured"
    if where == "across":
        return "not measured" if figure.sign else "inconclusive"
    if statement.measure == PEAK_MEMORY and where == "above" and before and before.status != "ok":
        return "not measured"
    return "met" if where == "within" else "missed"


def _why_unknown(cells: Mapping[str, Cell | None]) -> str:
    for name, cell in cells.items():
        if cell and cell.decision == "different":
            return f"{name}: different decision"
        if name not in ("", OTHERS) and (cell is None or cell.status != "ok"):
            return f"{name}: {cell.status if cell else 'not run'}"
    return "nothing to compare it with"

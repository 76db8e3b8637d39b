"""Claims against the record: factors of recorded cells, verdicts, and the counts behind them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.model.cell import Cell
from harness.model.ids import CellId
from harness.record.declared import RecordedClaim, RecordedSystem
from harness.record.record import Record

# A published factor is the ratio of two rounded figures, mostly of one run each, on a machine and a
# problem that are only described roughly. Closer than a quarter, it cannot be reproduced.
_TOLERANCE = 1.25

Interval = tuple[float, float, float]
Reproduction = Literal["reproduced", "smaller", "larger", "not recorded", "no published figure"]


@dataclass(frozen=True, slots=True)
class Factor:
    """How many times as fast a cell is as another one, with an interval if there is one.

    The interval is the 99 % interval of a comparison, or the range of separate calls. `calls` is
    the number of calls or pairs of calls behind it. `basis` says whether it was measured.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    calls: int = 1
    basis: str = "measured"


def divided(slow: Interval, fast: Interval, pairs: int = 1) -> Factor:
    """Return the factor of two variants, from their ratios to one baseline: (value, low, high).

    If neither is the baseline, the ends of the two intervals that are farthest apart are combined.
    """
    (a, a_low, a_high), (b, b_low, b_high) = slow, fast
    return Factor(a / b, a_low / b_high, a_high / b_low if b_low else math.nan, pairs)


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim, its cells, the recorded factor, and the counter before and after the change."""

    claim: RecordedClaim
    before: Cell | None
    after: Cell | None
    factor: Factor | None
    counts: tuple[int, int] | None

    @property
    def published(self) -> float:
        """The published factor; NaN without one."""
        return 1 / self.claim.published.ratio if self.claim.published else math.nan

    @property
    def verdict(self) -> Reproduction:
        """Compare the recorded factor with the published one."""
        if self.factor is None:
            return "not recorded"
        if self.claim.published is None:
            return "no published figure"
        factor = self.factor
        low, high = (factor.value if math.isnan(end) else end for end in (factor.low, factor.high))
        if high * _TOLERANCE < self.published:
            return "smaller"
        return "larger" if low > self.published * _TOLERANCE else "reproduced"


@dataclass(frozen=True, slots=True)
class SystemResult:
    """A system, its claim, our speed-up over today's release, and work that this repeats.

    `repeated` is how often today's release does the work, and how often is sufficient.
    """

    system: RecordedSystem
    claim: ClaimResult
    today: Cell | None
    ours: Cell | None
    factor: Factor | None
    repeated: tuple[int, float] | None


def claim_results(record: Record) -> list[ClaimResult]:
    """Return the result of each declared claim, in order."""
    cells = record.cells()
    return [_claim_result(claim, cells) for claim in record.declared.claim]


def system_results(record: Record) -> list[SystemResult]:
    """Return the result of each declared system, in order."""
    cells = record.cells()
    claims = {found.claim.name: found for found in claim_results(record)}
    return [
        SystemResult(
            system,
            claims[system.claim],
            today := _cell(cells, system.today),
            ours := _cell(cells, system.ours),
            factor_between(today, ours),
            _repeated(system, cells),
        )
        for system in record.declared.system
    ]


def _claim_result(claim: RecordedClaim, cells: Mapping[CellId, Cell]) -> ClaimResult:
    before, after = _cell(cells, claim.before), _cell(cells, claim.after)
    counted = [
        _cell(cells, claim.counted_before) or before,
        _cell(cells, claim.counted_after) or after,
    ]
    counts = tuple(
        cell.counters[claim.counter] for cell in counted if cell and claim.counter in cell.counters
    )
    pair = (counts[0], counts[1]) if len(counts) == 2 else None
    return ClaimResult(claim, before, after, factor_between(before, after), pair)


def _cell(cells: Mapping[CellId, Cell], name: str) -> Cell | None:
    return cells.get(CellId.parse(name)) if name else None


def factor_between(slow: Cell | None, fast: Cell | None) -> Factor | None:
    """Return how many times as fast one cell is as another; None if one has no time.

    Both cells are of one comparison, or were timed separately.
    """
    if slow is None or fast is None or not slow.cpu_s or not fast.cpu_s:
        return None
    compared = _compared(slow, fast)
    if compared is not None:
        return compared
    most = min(len(slow.cpu_s.samples), len(fast.cpu_s.samples))
    value = slow.cpu_s.median / fast.cpu_s.median
    if most < 2:
        return Factor(value)
    return Factor(
        value,
        min(slow.cpu_s.samples) / max(fast.cpu_s.samples),
        max(slow.cpu_s.samples) / min(fast.cpu_s.samples),
        most,
    )


def _compared(slow: Cell, fast: Cell) -> Factor | None:
    """Return the factor of two cells of one comparison; None if there is no interval."""
    if slow.problem != fast.problem or slow.against != fast.against:
        return None
    one, other = _ratio(slow), _ratio(fast)
    if one is None or other is None:
        return None
    return divided(one, other, min(cell.ratio.pairs for cell in (slow, fast) if cell.ratio))


def _ratio(cell: Cell) -> Interval | None:
    """Return the ratio to the baseline with its interval; None if it has no interval."""
    if cell.variant == cell.against:
        return 1.0, 1.0, 1.0
    if cell.ratio is None or cell.ratio.pairs < 2:
        return None
    return cell.ratio.value, cell.ratio.low, cell.ratio.high


def _repeated(system: RecordedSystem, cells: Mapping[CellId, Cell]) -> tuple[int, float] | None:
    cell, least = _cell(cells, system.counted), _cell(cells, system.sufficient)
    if cell is None or system.counter not in cell.counters:
        return None
    sufficient = cell.counter_enough.get(system.counter)
    if isinstance(sufficient, str):
        sufficient = cell.counters.get(sufficient)
    if sufficient is None and least is not None:
        sufficient = least.counters.get(system.counter)
    return None if sufficient is None else (cell.counters[system.counter], float(sufficient))

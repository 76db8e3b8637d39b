"""What cells say of goals, claims and headlines."""

import math
from dataclasses import replace

import pytest

from harness.measuring.statements import Counts, Reading, counts, evaluate, speedup
from harness.model.cell import Cell, Progress, Ratio, Summary
from harness.model.ids import CellId
from harness.model.quality import Quality
from harness.model.settings import Settings
from harness.model.statement import OTHERS, Claim, Pair, Statement

PROBLEM = "toy[size=4]/dgx_a100_80gb:2"
GOAL = Statement("goal", "quick is quick", PROBLEM, "slow", "quick", family="toy")
FASTER = replace(GOAL, at_least=10.0)
SECONDS = replace(GOAL, before="", measure="seconds", at_most=60.0)
MEMORY = replace(GOAL, measure="peak memory", at_most=1.5)
QUALITY = replace(GOAL, before="", measure="cost", at_most=5.0)
BEST = replace(QUALITY, before=OTHERS, at_most=1.0)
CLAIM = replace(GOAL, use="claim", published=Claim(20, 2.5, "min"))
STOPPED = {"status": "over budget", "wall_s": None, "cpu_s": None, "quality": {}}


def cell(variant: str, problem: str = PROBLEM, **changes) -> Cell:
    fields = {
        "status": "ok",
        "reference": "slow",
        "decision": "reference" if variant == "slow" else "own",
        "wall_s": Summary(40.0),
        "peak_memory_bytes": 100 * 2**20,
        "quality": {"cost": 4.0},
        "qualities": [Quality("cost", "ms")],
        "settings": Settings(120.0),
    }
    return Cell(id=CellId.parse(f"toy/{variant}@{problem}"), **fields | changes)


def timed(variant: str, *samples: float, **changes) -> Cell:
    return cell(variant, cpu_s=Summary.of(samples), **changes)


def ratio(value: float, low: float, high: float, pairs: int = 9) -> Ratio:
    return Ratio(value, low, high, pairs)


SLOW = timed("slow", 8.0)


def read(statement: Statement, *cells: Cell) -> Reading:
    return evaluate(statement, {known.id: known for known in cells})


def faster(low: float, high: float) -> Cell:
    """Return the cell of `quick` with this interval of its ratio to `slow`."""
    return timed("quick", 1.0, ratio=ratio(math.sqrt(low * high), low, high))


def of_cost(cost: float, variant: str = "quick", problem: str = PROBLEM, **changes) -> Cell:
    return cell(variant, problem, quality={"cost": cost}, **changes)


QUICK = cell("quick")
STOPPED_SLOW, STOPPED_QUICK = cell("slow", **STOPPED), cell("quick", **STOPPED)
PROJECTED = cell("slow", **STOPPED, projection_s=4000.0)
FOLLOWED = Progress(1, 10, "options", more_follows=True)
MORE = cell("slow", **STOPPED, projection_s=4000.0, progress=FOLLOWED)
LARGE = "toy[size=9]/dgx_a100_80gb:2"
PEAK, HIGHER = {"peak_memory_bytes": 150 * 2**20}, {"peak_memory_bytes": 151 * 2**20}
HALF = replace(BEST, before="slow", at_most=0.5)

JUDGED = [
    # The whole interval of a ratio decides on a goal.
    (FASTER, [SLOW, faster(0.04, 0.08)], "met"),
    (FASTER, [SLOW, faster(0.04, 0.1)], "met"),
    (FASTER, [SLOW, faster(0.04, 0.11)], "inconclusive"),
    (FASTER, [SLOW, faster(0.15, 0.3)], "missed"),
    (FASTER, [SLOW, timed("quick", 1.0, ratio=Ratio(0.05, 0.0, math.inf, 1))], "inconclusive"),
    # A different decision is never a speedup.
    (FASTER, [SLOW, timed("quick", 1.0, decision="different")], "quick: different decision"),
    # A projection is no measurement, and says nothing if more follows.
    (FASTER, [PROJECTED, QUICK], "projected to be met"),
    (replace(FASTER, at_least=101), [PROJECTED, QUICK], "projected to be missed"),
    (replace(FASTER, at_least=101), [MORE, QUICK], "not measured"),
    # A stopped call bounds the speedup.
    (replace(FASTER, at_least=3), [STOPPED_SLOW, QUICK], "met"),
    (FASTER, [STOPPED_SLOW, QUICK], "slow: over budget"),
    (FASTER, [cell("slow"), STOPPED_QUICK], "missed"),
    (replace(FASTER, at_least=0.1), [cell("slow"), STOPPED_QUICK], "quick: over budget"),
    # The median decides on seconds, and a stopped call took longer than its budget.
    (SECONDS, [cell("quick", wall_s=Summary(60.0))], "met"),
    (SECONDS, [cell("quick", wall_s=Summary(60.1))], "missed"),
    (SECONDS, [STOPPED_QUICK], "missed"),
    (replace(SECONDS, at_most=121.0), [STOPPED_QUICK], "not measured"),
    # Peaks are compared as far as they are known.
    (MEMORY, [cell("slow"), cell("quick", **PEAK)], "met"),
    (MEMORY, [cell("slow"), cell("quick", **HIGHER)], "missed"),
    (MEMORY, [STOPPED_SLOW, QUICK], "met"),
    (MEMORY, [STOPPED_SLOW, cell("quick", **HIGHER)], "not measured"),
    (MEMORY, [cell("slow"), STOPPED_QUICK], "not measured"),
    (MEMORY, [cell("slow"), cell("quick", **STOPPED, **HIGHER)], "missed"),
    (MEMORY, [cell("slow"), cell("quick", peak_memory_bytes=None)], "not measured"),
    # A quality is compared with the limit, with a variant, or with the best of all others.
    (QUALITY, [QUICK], "met"),
    (QUALITY, [of_cost(5.1)], "missed"),
    (QUALITY, [cell("quick", quality={})], "not measured"),
    (HALF, [QUICK, of_cost(8.0, "slow")], "met"),
    (HALF, [QUICK, of_cost(7.9, "slow")], "missed"),
    (HALF, [QUICK], "slow: not run"),
    (BEST, [QUICK, of_cost(4.0, "slow"), of_cost(9.0, "even")], "met"),
    (BEST, [QUICK, of_cost(4.0 - 1e-12, "slow")], "met"),
    (BEST, [QUICK, of_cost(5.0, "slow"), of_cost(3.9, "even")], "missed"),
    (
        BEST,
        [QUICK, of_cost(1.0, "slow", LARGE), of_cost(1.0, "failed", status="failed")],
        "not measured",
    ),
    # A claim is reproduced if its interval is within a quarter of its factor.
    (CLAIM, [SLOW, timed("quick", 1.2)], "reproduced"),
    (CLAIM, [SLOW, timed("quick", 2.0)], "smaller"),
    (CLAIM, [SLOW, timed("quick", 0.5)], "larger"),
    (CLAIM, [SLOW, timed("quick", 2.4, ratio=ratio(0.3, 0.1, 0.9))], "reproduced"),
    (CLAIM, [SLOW, timed("quick", 2.4, ratio=ratio(0.3, 0.28, 0.32))], "smaller"),
    (replace(CLAIM, published=None), [SLOW, timed("quick", 1.2)], "no published figure"),
]


@pytest.mark.parametrize(("statement", "cells", "said"), JUDGED)
def test_cells_decide_on_a_statement(statement, cells, said):
    """Goals and claims are met, missed, or open, each with a reason."""
    reading = read(statement, *cells)
    assert said in (reading.outcome, reading.reason)


def test_a_reading_has_its_value_and_its_limit():
    """A projected value is marked."""
    text = read(FASTER, PROJECTED, QUICK).measured(lambda value, unit: f"{value:g} {unit}")
    assert text == "≥ 100 times (projected)"
    assert (read(QUALITY, QUICK).value, read(QUALITY, QUICK).limit) == (4.0, 5.0)
    assert read(HALF, QUICK, of_cost(9.0, "slow")).limit == 4.5


@pytest.mark.parametrize(
    ("slow", "quick", "ends"),
    [
        (SLOW, faster(0.1, 0.2), (5, 10)),
        # Two that were compared with a third: the ends that are farthest apart.
        (
            timed("half", 1.0, ratio=ratio(0.6, 0.54, 0.66)),
            timed("quick", 1.0, ratio=ratio(0.3, 0.27, 0.33)),
            (0.54 / 0.33, 0.66 / 0.27),
        ),
        (timed("slow", 8.0, 8.0), timed("quick", 1.0, 2.0), (4, 8)),
        (SLOW, timed("quick", 1.0), (math.nan, math.nan)),
    ],
)
def test_the_interval_is_that_of_a_comparison_else_the_range_of_calls(slow, quick, ends):
    """A speed-up without an interval has no ends."""
    figure = speedup(slow, quick)
    assert (figure.low, figure.high) == pytest.approx(ends, nan_ok=True)


def test_a_measured_pair_is_preferred_to_a_bound():
    """The quick pair speaks where the large one was stopped, and else the large one."""
    headline = replace(GOAL, use="headline", problem=LARGE, quick=Pair(PROBLEM, "slow", "quick"))
    small = SLOW, timed("quick", 1.0)
    stopped = cell("slow", LARGE, **STOPPED), timed("quick", 1.0, problem=LARGE)
    assert read(headline, *stopped).value == 3
    assert read(headline, *stopped, *small).pair.problem == PROBLEM
    whole = timed("slow", 9.0, problem=LARGE), stopped[1]
    assert read(headline, *whole, *small).value == 9


def test_work_is_counted_where_the_statement_says_and_enough_is_declared_or_that_of_after():
    """A counter may name another counter as what is enough."""
    counted = Pair(LARGE, "lib/commit", "")
    claim = replace(CLAIM, counter="copies", counted=(counted,))
    pair = cell("slow", counters={"copies": 900}), cell("quick", counters={"copies": 1})
    here = {of_variant.id: of_variant for of_variant in pair}
    assert counts(claim, here) == Counts(900, 1, 1)
    commit = CellId.parse(f"lib/commit@{LARGE}")
    here[commit] = cell("slow", counters={"copies": 7, "asked": 3})
    here[commit].counter_enough = {"copies": "asked"}
    assert counts(claim, here) == Counts(7, None, 3)
    assert counts(replace(claim, counter="sums"), here) is None

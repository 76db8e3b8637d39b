"""What cells say of goals, claims and headlines."""

import math
from dataclasses import replace

import pytest

from harness.measuring.statements import Reading, counts, evaluate, speedup
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
    return evaluate(statement, {found.id: found for found in cells})


class TestTimes:
    @pytest.mark.parametrize(
        ("measured", "outcome"),
        [
            (ratio(0.05, 0.04, 0.08), "met"),
            (ratio(0.05, 0.04, 0.1), "met"),
            (ratio(0.05, 0.04, 0.11), "inconclusive"),
            (ratio(0.2, 0.15, 0.3), "missed"),
            (Ratio(0.05, 0.0, math.inf, 1), "inconclusive"),
        ],
    )
    def test_the_whole_interval_decides_on_a_goal(self, measured: Ratio, outcome: str):
        assert read(FASTER, SLOW, timed("quick", 1.0, ratio=measured)).outcome == outcome

    def test_a_projection_is_no_measurement(self):
        slow, quick = cell("slow", **STOPPED, projection_s=4000.0), cell("quick")
        reading = read(FASTER, slow, quick)
        assert reading.outcome == "projected to be met"
        text = reading.measured(lambda value, unit: f"{value:g} {unit}")
        assert text == "≥ 100 times (projected)"
        assert read(replace(FASTER, at_least=101), slow, quick).outcome == "projected to be missed"
        slow.progress = Progress(1, 10, "options", more_follows=True)
        assert read(replace(FASTER, at_least=101), slow, quick).outcome == "not measured"

    def test_a_stopped_call_bounds_the_speedup(self):
        slow, quick = cell("slow", **STOPPED), cell("quick")
        assert read(replace(FASTER, at_least=3), slow, quick).outcome == "met"
        assert read(FASTER, slow, quick).reason == "slow: over budget"
        slow, quick = cell("slow"), cell("quick", **STOPPED)
        assert read(FASTER, slow, quick).outcome == "missed"
        assert read(replace(FASTER, at_least=0.1), slow, quick).reason == "quick: over budget"

    @pytest.mark.parametrize(
        ("slow", "quick", "ends"),
        [
            (SLOW, timed("quick", 1.0, ratio=ratio(0.125, 0.1, 0.2)), (5, 10)),
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
    def test_the_interval_is_that_of_a_comparison_else_the_range_of_calls(self, slow, quick, ends):
        figure = speedup(slow, quick)
        assert figure
        assert (figure.low, figure.high) == pytest.approx(ends, nan_ok=True)

    def test_a_different_decision_is_never_a_speedup(self):
        quick = timed("quick", 1.0, decision="different", ratio=ratio(0.1, 0.1, 0.1))
        reading = read(FASTER, SLOW, quick)
        assert (reading.outcome, reading.reason) == ("not measured", "quick: different decision")

    def test_a_measured_pair_is_preferred_to_a_bound(self):
        """The quick pair speaks where the large one was stopped, and else the large one."""
        large = "toy[size=9]/dgx_a100_80gb:2"
        headline = replace(
            GOAL, use="headline", problem=large, quick=Pair(PROBLEM, "slow", "quick")
        )
        small = SLOW, timed("quick", 1.0)
        stopped = cell("slow", large, **STOPPED), timed("quick", 1.0, problem=large)
        assert read(headline, *stopped).value == 3
        assert read(headline, *stopped, *small).pair.problem == PROBLEM
        whole = timed("slow", 9.0, problem=large), stopped[1]
        assert read(headline, *whole, *small).value == 9


class TestOtherMeasures:
    def test_the_median_decides_on_seconds_and_a_stopped_call_took_longer_than_its_budget(self):
        assert read(SECONDS, cell("quick", wall_s=Summary(60.0))).outcome == "met"
        assert read(SECONDS, cell("quick", wall_s=Summary(60.1))).outcome == "missed"
        assert read(SECONDS, cell("quick", **STOPPED)).outcome == "missed"
        later = replace(SECONDS, at_most=121.0)
        assert read(later, cell("quick", **STOPPED)).outcome == "not measured"

    @pytest.mark.parametrize(
        ("quick", "slow", "outcome"),
        [
            ({"peak_memory_bytes": 150 * 2**20}, {}, "met"),
            ({"peak_memory_bytes": 151 * 2**20}, {}, "missed"),
            ({}, STOPPED, "met"),
            ({"peak_memory_bytes": 151 * 2**20}, STOPPED, "not measured"),
            (STOPPED, {}, "not measured"),
            ({**STOPPED, "peak_memory_bytes": 151 * 2**20}, {}, "missed"),
            ({"peak_memory_bytes": None}, {}, "not measured"),
        ],
    )
    def test_peaks_are_compared_as_far_as_they_are_known(self, quick, slow, outcome):
        reading = read(MEMORY, cell("slow", **slow), cell("quick", **quick))
        assert reading.outcome == outcome

    def test_a_quality_is_compared_with_the_limit_or_with_a_variant(self):
        reading = read(QUALITY, cell("quick"))
        assert (reading.outcome, reading.value, reading.limit) == ("met", 4.0, 5.0)
        assert read(QUALITY, cell("quick", quality={"cost": 5.1})).outcome == "missed"
        assert read(QUALITY, cell("quick", quality={})).outcome == "not measured"
        half = replace(BEST, before="slow", at_most=0.5)
        assert read(half, cell("quick"), cell("slow", quality={"cost": 9.0})).limit == 4.5
        assert read(half, cell("quick")).reason == "slow: not run"

    @pytest.mark.parametrize(
        ("others", "outcome"),
        [
            ({"slow": 4.0, "even": 9.0}, "met"),
            ({"slow": 4.0 - 1e-12}, "met"),
            ({"slow": 5.0, "even": 3.9}, "missed"),
            ({}, "not measured"),
        ],
    )
    def test_or_with_the_best_of_all_others(self, others: dict[str, float], outcome: str):
        cells = [cell(name, quality={"cost": cost}) for name, cost in others.items()]
        elsewhere = cell("slow", "toy[size=9]/dgx_a100_80gb:2", quality={"cost": 1.0})
        failed = cell("failed", status="failed", quality={"cost": 1.0})
        assert read(BEST, cell("quick"), elsewhere, failed, *cells).outcome == outcome


@pytest.mark.parametrize(
    ("quick", "outcome"),
    [
        (timed("quick", 1.2), "reproduced"),
        (timed("quick", 2.0), "smaller"),
        (timed("quick", 0.5), "larger"),
        (timed("quick", 2.4, ratio=ratio(0.3, 0.1, 0.9)), "reproduced"),
        (timed("quick", 2.4, ratio=ratio(0.3, 0.28, 0.32)), "smaller"),
    ],
)
def test_a_claim_is_reproduced_if_its_interval_is_within_a_quarter_of_its_factor(quick, outcome):
    assert read(CLAIM, SLOW, quick).outcome == outcome
    assert read(replace(CLAIM, published=None), SLOW, quick).outcome == "no published figure"


def test_work_is_counted_where_the_statement_says_and_enough_is_declared_or_that_of_after():
    counted = Pair("toy[size=9]/dgx_a100_80gb:2", "lib/commit", "")
    claim = replace(CLAIM, counter="copies", counted=(counted,))
    pair = cell("slow", counters={"copies": 900}), cell("quick", counters={"copies": 1})
    here = {found.id: found for found in pair}
    found = counts(claim, here)
    assert found
    assert (found.before, found.after, found.enough) == (900, 1, 1)
    commit = CellId.parse(f"lib/commit@{counted.problem}")
    here[commit] = cell("slow", counters={"copies": 7, "asked": 3})
    here[commit].counter_enough = {"copies": "asked"}
    found = counts(claim, here)
    assert found
    assert (found.before, found.after, found.enough) == (7, None, 3)
    assert counts(replace(claim, counter="sums"), here) is None

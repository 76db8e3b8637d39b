import math
from dataclasses import replace as replaced

import pytest
import toy
from harness.measuring.goals import Standing, standing
from harness.model.overview import Goal
from msgspec.structs import replace

from harness.contract.registry import Registry
from harness.model.cell import Cell, Progress, Ratio, Summary
from harness.model.errors import RegistryError
from harness.model.ids import CellId
from harness.model.quality import Quality
from harness.model.settings import Settings

PROBLEM = "toy[size=4]/dgx_a100_80gb:2"
FASTER = Goal("quick is 10 times faster", PROBLEM, "quick", "times faster", 10.0, "slow")
SECONDS = Goal("quick takes a minute", PROBLEM, "quick", "seconds", 60.0)
MEMORY = Goal("quick needs no more", PROBLEM, "quick", "peak memory", 1.5, "slow")
QUALITY = Goal("quick is good", PROBLEM, "quick", "quality", 5.0, quality="cost")
BEST = replace(QUALITY, limit=1.0, against="others")


def cell(variant: str, **changes) -> Cell:
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
    return Cell(id=CellId.parse(f"toy/{variant}@{PROBLEM}"), **fields | changes)


STOPPED = {"status": "over budget", "wall_s": None, "quality": {}}


def stands(goal: Goal, *cells: Cell) -> Standing:
    return standing(goal, {each.variant: each for each in cells})


class TestTimesFaster:
    @pytest.mark.parametrize(
        ("measured", "outcome"),
        [
            (Ratio(0.05, 0.04, 0.08), "met"),
            (Ratio(0.05, 0.04, 0.1), "met"),
            (Ratio(0.05, 0.04, 0.11), "inconclusive"),
            (Ratio(0.2, 0.15, 0.3), "missed"),
            (Ratio(0.05, 0.0, math.inf), "inconclusive"),
        ],
    )
    def test_the_whole_interval_decides(self, measured: Ratio, outcome: str):
        found = stands(FASTER, cell("slow"), cell("quick", ratio=measured))
        assert found.outcome == outcome
        assert found.value == 1 / measured.value
        assert found.low <= found.value <= found.high

    def test_the_projection_of_a_first_step_misses_no_goal(self):
        begun = Progress(1, 10, "options", more_follows=True)
        slow = cell("slow", **STOPPED, projection_s=4000.0, progress=begun)
        assert stands(FASTER, slow, cell("quick")).outcome == "projected to be met"
        found = stands(replace(FASTER, limit=101), slow, cell("quick"))
        assert found.outcome == "not measured"

    def test_a_projection_is_no_measurement(self):
        slow = cell("slow", **STOPPED, projection_s=4000.0)
        found = stands(FASTER, slow, cell("quick"))
        assert found.outcome == "projected to be met"
        assert found.measured(lambda value, unit: f"{value:g} {unit}") == "≥ 100 times (projected)"
        assert stands(replace(FASTER, limit=101), slow, cell("quick")).outcome == (
            "projected to be missed"
        )

    def test_who_passes_the_budget_is_not_faster(self):
        quick = cell("quick", **STOPPED)
        found = stands(FASTER, cell("slow"), quick)
        assert (found.outcome, found.sign, found.value) == ("missed", "<", 40 / 120)
        found = stands(replace(FASTER, limit=0.1), cell("slow"), quick)
        assert (found.outcome, found.reason) == ("not measured", "quick: over budget")

    @pytest.mark.parametrize(
        ("cells", "reason"),
        [
            ([], "quick: not run"),
            ([cell("quick")], "slow: not run"),
            ([cell("slow", **STOPPED), cell("quick")], "slow: over budget"),
            ([cell("slow"), cell("quick", status="failed", wall_s=None)], "quick: failed"),
            (
                [cell("slow"), cell("quick", decision="different", ratio=Ratio(0.1, 0.1, 0.1))],
                "quick: different decision",
            ),
            (
                [cell("slow"), cell("quick", against="other", ratio=Ratio(0.1, 0.1, 0.1))],
                "nothing to compare it with",
            ),
        ],
    )
    def test_what_was_not_measured_is_not_met(self, cells: list[Cell], reason: str):
        found = stands(FASTER, *cells)
        assert (found.outcome, found.reason) == ("not measured", reason)
        assert found.measured(lambda value, unit: "") == reason

    def test_the_family_s_reference_is_meant_where_nothing_is_said(self):
        quick = cell("quick", ratio=Ratio(0.05, 0.04, 0.06))
        assert stands(replace(FASTER, against=""), cell("slow"), quick).outcome == "met"


class TestSeconds:
    @pytest.mark.parametrize(("wall", "outcome"), [(60.0, "met"), (60.1, "missed")])
    def test_the_median_decides(self, wall: float, outcome: str):
        found = stands(SECONDS, cell("quick", wall_s=Summary(wall)))
        assert (found.outcome, found.value, found.unit) == (outcome, wall, "s")

    def test_a_call_that_was_stopped_took_longer_than_its_budget(self):
        found = stands(SECONDS, cell("quick", **STOPPED))
        assert (found.outcome, found.sign, found.value) == ("missed", ">", 120.0)
        later = replace(SECONDS, limit=121.0)
        assert stands(later, cell("quick", **STOPPED)).outcome == "not measured"


class TestPeakMemory:
    @pytest.mark.parametrize(
        ("mine", "theirs", "outcome"),
        [
            ({"peak_memory_bytes": 150 * 2**20}, {}, "met"),
            ({"peak_memory_bytes": 151 * 2**20}, {}, "missed"),
            ({}, STOPPED, "met"),
            ({"peak_memory_bytes": 151 * 2**20}, STOPPED, "not measured"),
            ({**STOPPED}, {}, "not measured"),
            ({**STOPPED, "peak_memory_bytes": 151 * 2**20}, {}, "missed"),
            ({"peak_memory_bytes": None}, {}, "not measured"),
        ],
    )
    def test_peaks_are_compared_as_far_as_they_are_known(self, mine, theirs, outcome):
        found = stands(MEMORY, cell("slow", **theirs), cell("quick", **mine))
        assert found.outcome == outcome

    def test_it_is_told_in_mebibytes(self):
        found = stands(MEMORY, cell("slow"), cell("quick"))
        assert (found.value, found.limit, found.unit) == (100.0, 150.0, "MiB")


class TestQuality:
    def test_it_is_set_beside_the_limit(self):
        found = stands(QUALITY, cell("quick"))
        assert (found.outcome, found.value, found.limit, found.unit) == ("met", 4.0, 5.0, "ms")
        assert stands(QUALITY, cell("quick", quality={"cost": 5.1})).outcome == "missed"
        assert stands(QUALITY, cell("quick", quality={})).outcome == "not measured"

    @pytest.mark.parametrize(
        ("others", "outcome"),
        [
            ({"slow": 4.0, "even": 9.0}, "met"),
            ({"slow": 4.0 - 1e-12}, "met"),
            ({"slow": 5.0, "even": 3.9}, "missed"),
            ({"slow": 0.0}, "missed"),
            ({}, "not measured"),
        ],
    )
    def test_or_beside_the_best_of_the_others(self, others: dict[str, float], outcome: str):
        cells = [cell(name, quality={"cost": cost}) for name, cost in others.items()]
        stopped = cell("stopped", status="failed", quality={"cost": 1.0})
        assert stands(BEST, cell("quick"), stopped, *cells).outcome == outcome

    def test_or_beside_that_of_one_variant(self):
        beside = replace(BEST, against="slow", limit=0.5)
        found = stands(beside, cell("quick"), cell("slow", quality={"cost": 9.0}))
        assert (found.outcome, found.limit) == ("met", 4.5)
        assert stands(beside, cell("quick")).reason == "slow: not run"


class TestDeclaring:
    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            (
                {"measure": "speed"},
                "has measure 'speed'; allowed are: times faster, seconds, peak memory, quality.",
            ),
            ({"variant": "sane"}, "names variant 'sane', which is not registered."),
            ({"against": "sane"}, "names variant 'sane', which is not registered."),
            ({"against": "others"}, "names variant 'others', which is not registered."),
            (
                {"quality": "fullest"},
                "must name a quality that is better lower where that is its measure, and only "
                "there, not 'fullest'.",
            ),
            (
                {"measure": "quality", "quality": "least"},
                "must name a quality that is better lower where that is its measure, and only "
                "there, not 'least'.",
            ),
            (
                {"measure": "quality"},
                "must name a quality that is better lower where that is its measure, and only "
                "there, not ''.",
            ),
            (
                {"problem": "toy"},
                "is malformed: Problem 'toy' is malformed; write workload/topology:gpus, e.g. "
                "dlrm-856/dgx_h100:16.",
            ),
        ],
    )
    def test_what_the_family_does_not_have_is_refused(self, changes: dict, sentence: str):
        goal = Goal("same is quick", PROBLEM, "same", "times faster", 2.0)
        (family,) = toy.bounded_registry().families
        with pytest.raises(RegistryError) as refused:
            Registry([replaced(family, goals=(replace(goal, **changes),))])
        assert str(refused.value) == f"Goal 'same is quick' of family 'toy' {sentence}"


def test_nothing_is_written_where_nothing_is_known():
    assert math.isnan(Standing("not measured").value)

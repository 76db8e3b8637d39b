"""Calls that never end, or fail while they are timed, are stopped; the other variants are timed."""

from pathlib import Path

import pytest
import toy
from comparing import SHORT, TOLD, compare, ends, left_pid
from processes import server_children

from harness.measuring.jobs import OverBudget
from harness.model.cell import Progress


class TestOverBudget:
    def test_it_is_stopped_and_projected(self, folder: Path):
        cells = compare("endless", "same", folder=folder, budget=TOLD)
        cell = cells["endless"]
        assert cell.status == "over budget"
        assert cell.reason is not None
        assert cell.reason.startswith("stopped after ")
        assert cell.progress is not None
        assert 0 < cell.progress.done < 10_000
        assert (cell.progress.total, cell.progress.unit) == (10_000, "items")
        # A hundred items a second, of ten thousand.
        assert cell.projection_s is not None
        assert 50 < cell.projection_s < 200
        assert (cell.decision, cell.wall_s, cell.ratio) == (None, None, None)
        assert ends(left_pid(folder))
        assert cells["same"].status == "ok"
        assert cells["same"].ratio is not None

    def test_without_progress_there_is_no_projection(self, folder: Path):
        cell = compare("silent", folder=folder, budget=SHORT)["silent"]
        assert (cell.status, cell.progress, cell.projection_s) == ("over budget", None, None)
        assert ends(left_pid(folder))

    def test_progress_that_fails_once_is_told_later(self):
        cell = compare("stumbling", budget=TOLD)["stumbling"]
        assert cell.status == "over budget"
        assert cell.progress is not None

    def test_a_reference_over_budget_leaves_the_others_timed(self, folder: Path):
        registry = toy.slow_reference_registry
        cells = compare("same", "own", folder=folder, budget=SHORT, registry=registry)
        assert cells["reference"].status == "over budget"
        for name in ("same", "own"):
            cell = cells[name]
            assert cell.status == "ok"
            assert cell.cpu_s is not None
            assert (cell.ratio, cell.verdict) == (None, None)
        assert cells["same"].decision is None
        assert cells["own"].decision == "own"

    def test_a_timed_call_over_budget_leaves_the_others_timed(self):
        cells = compare("endless-later", "same", budget=SHORT)
        cell = cells["endless-later"]
        assert (cell.status, cell.decision) == ("over budget", "same")
        assert (cell.cpu_s, cell.ratio) == (None, None)
        assert cells["same"].status == "ok"
        assert cells["same"].ratio is not None
        assert cells["reference"].cpu_s is not None
        assert server_children() == []

    def test_building_the_problem_is_not_part_of_the_call(self):
        cells = compare("reference", budget=SHORT, build="0.7")
        assert {cell.status for cell in cells.values()} == {"ok"}

    def test_preparing_is_not_part_of_the_call(self):
        cells = compare("slow-to-prepare", budget=SHORT)
        assert {cell.status for cell in cells.values()} == {"ok"}

    def test_rating_the_decision_is_not_part_of_the_call(self):
        cells = compare("reference", budget=SHORT, registry=toy.slow_quality_registry)
        assert {cell.status for cell in cells.values()} == {"ok"}

    def test_what_it_started_is_stopped_too(self, folder: Path):
        cell = compare("silent-parent", folder=folder, budget=SHORT)["silent-parent"]
        assert cell.status == "over budget"
        assert ends(left_pid(folder, "grandchild"))


class TestProjection:
    def projection(self, *told: tuple[float, int, int | None]) -> float | None:
        over = OverBudget(10.0)
        for seconds, done, total in told:
            over.report(seconds, Progress(done, total, "items"))
        return over.projection()

    def test_the_pace_between_first_and_last_goes_on(self):
        # 5 s of set-up, then 10 items a second: 90 s more for the 900 that are left.
        assert self.projection((5.0, 0, 1000), (15.0, 100, 1000)) == 105.0

    def test_what_begins_again_has_a_pace_of_its_own(self):
        told = (5.0, 0, 1000), (6.0, 900, 1000), (7.0, 0, 1000), (17.0, 100, 1000)
        assert self.projection(*told) == 107.0

    def test_another_step_has_a_pace_of_its_own(self):
        over = OverBudget(10.0)
        over.report(1.0, Progress(1, 100, "tables"))
        over.report(2.0, Progress(1, 10, "proposals"))
        assert over.projection() is None
        over.report(3.0, Progress(2, 10, "proposals"))
        assert over.projection() == 11.0

    @pytest.mark.parametrize(
        "told",
        [
            [],
            [(5.0, 10, 100)],
            [(5.0, 10, 100), (6.0, 10, 100)],
            [(5.0, 10, 100), (6.0, 9, 100)],
            [(5.0, 10, None), (6.0, 20, None)],
        ],
        ids=["nothing", "once", "no step", "a step back", "no total"],
    )
    def test_without_a_pace_there_is_none(self, told):
        assert self.projection(*told) is None

    def test_more_than_all_ends_now(self):
        assert self.projection((1.0, 10, 100), (2.0, 120, 100)) == 2.0


class TestFailuresWhileTiming:
    @pytest.mark.parametrize(
        ("variant", "reason"),
        [
            ("raises-later", "worn out"),
            ("killed-later", "signal 9"),
            ("changes-later", "decision changed from one call to the next"),
        ],
    )
    def test_one_leaves_the_others_timed(self, variant: str, reason: str):
        cells = compare(variant, "same")
        assert cells[variant].status == "failed"
        assert reason in (cells[variant].reason or "")
        assert cells[variant].decision == "same"
        assert cells[variant].cpu_s is None
        assert cells["reference"].status == "ok"
        assert cells["same"].status == "ok"
        assert cells["same"].ratio is not None

    def test_a_time_that_is_none_leaves_the_others_timed(self):
        cells = compare("measured-without-cpu", "same")
        assert {cell.status for cell in cells.values()} == {"ok"}
        assert cells["measured-without-cpu"].ratio is None
        assert cells["measured-without-cpu"].verdict == "inconclusive"
        assert cells["same"].ratio is not None

    def test_a_failure_to_close_loses_no_times(self):
        cells = compare("close-raises", "same")
        assert cells["reference"].cpu_s is not None
        assert cells["same"].ratio is not None

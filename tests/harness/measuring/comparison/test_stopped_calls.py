"""Calls that never end, or fail while they are timed, are stopped; the other variants are timed."""

from pathlib import Path

import pytest
import toy
from comparing import LONG, SHORT, TOLD, compare, ends, left_pid
from processes import server_children

from harness.measuring.jobs import Event, Pace
from harness.model.cell import Progress


class TestOverBudget:
    def test_a_call_is_stopped_and_projected(self, folder: Path):
        """A hundred items a second, of ten thousand, take a hundred seconds."""
        events: list[Event] = []
        cells = compare("endless", "same", folder=folder, budget=TOLD, listen=events.append)
        cell = cells["endless"]
        assert cell.status == "over budget"
        assert cell.reason.startswith("stopped after ")
        assert 0 < cell.progress.done < 10_000
        assert (cell.progress.total, cell.progress.unit) == (10_000, "items")
        assert 50 < cell.projection_s < 200
        assert (cell.decision, cell.wall_s, cell.ratio) == (None, None, None)
        assert ends(left_pid(folder))
        assert cells["same"].ratio is not None
        told = [event.progress.done for event in events if event.progress is not None]
        assert told == sorted(told)

    def test_a_reference_over_budget_leaves_the_others_timed(self, folder: Path):
        """They have times, and nothing to compare them with."""
        registry = toy.slow_reference_registry
        cells = compare("same", "own", folder=folder, budget=SHORT, registry=registry)
        assert cells["reference"].status == "over budget"
        for name, decision in (("same", None), ("own", "own")):
            cell = cells[name]
            assert (cell.status, cell.decision) == ("ok", decision)
            assert cell.cpu_s is not None
            assert (cell.ratio, cell.verdict) == (None, None)

    @pytest.mark.parametrize(
        ("variant", "more"),
        [("slow-to-prepare", {}), ("reference", {"registry": toy.slow_quality_registry})],
    )
    def test_what_is_no_part_of_the_call_may_take_longer(self, variant: str, more):
        """The budget of a call is not that of its set-up or of the rating."""
        cells = compare(variant, budget=SHORT, **more)
        assert {cell.status for cell in cells.values()} == {"ok"}

    def test_what_it_started_is_stopped_too(self, folder: Path):
        """A call ends with the processes that it started."""
        cell = compare("silent-parent", folder=folder, budget=SHORT)["silent-parent"]
        assert (cell.status, cell.progress, cell.projection_s) == ("over budget", None, None)
        assert ends(left_pid(folder, "grandchild"))


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        # 5 s of set-up, then 10 items a second: 90 s more for the 900 that are left.
        ([(5.0, 0, 1000), (15.0, 100, 1000)], 105.0),
        # What begins again has a pace of its own.
        ([(5.0, 0, 1000), (6.0, 900, 1000), (7.0, 0, 1000), (17.0, 100, 1000)], 107.0),
        # More than all ends now.
        ([(1.0, 10, 100), (2.0, 120, 100)], 2.0),
        # Without a pace there is none.
        ([], None),
        ([(5.0, 10, 100)], None),
        ([(5.0, 10, 100), (6.0, 10, 100)], None),
        ([(5.0, 10, 100), (6.0, 9, 100)], None),
        ([(5.0, 10, None), (6.0, 20, None)], None),
    ],
)
def test_a_call_goes_on_at_the_pace_between_first_and_last(told, seconds):
    """A projection needs two reports of one step."""
    pace = Pace()
    for elapsed_s, done, total in told:
        pace.report(Progress(done, total, "items", elapsed_s))
    assert pace.projection() == seconds
    pace.report(Progress(1, 10, "proposals", 100.0))
    assert pace.projection() is None, "another step has a pace of its own"


@pytest.mark.parametrize(
    ("variant", "status", "reason"),
    [
        ("changes-later", "failed", "decision changed from one call to the next"),
        ("endless-later", "over budget", "stopped after"),
    ],
)
def test_a_failure_while_timing_leaves_the_others_timed(variant: str, status: str, reason: str):
    """The variant that failed is identified, and the others are timed again without it."""
    cells = compare(variant, "same", budget=SHORT if status == "over budget" else LONG)
    cell = cells[variant]
    assert (cell.status, cell.decision, cell.cpu_s) == (status, "same", None)
    assert reason in cell.reason
    assert cells["same"].ratio is not None
    assert server_children() == []

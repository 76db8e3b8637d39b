"""Comparing variants: the outcome in each cell, stopped calls, and what is left behind."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import toy
import toy_registries
from comparing import LONG, SHORT, TOLD, compare, ends, left_pid
from processes import server_children

from harness.measuring.jobs import Event, Pace
from harness.measuring.timing.verdict import judge
from harness.model.cell import Cell, Progress
from harness.model.errors import UsageError
from harness.store.cells import CellStore

DECIDED = {
    "reference": ["reference"],
    "same": ["same", "measured", "installed", "undisturbed"],
    "own": ["own"],
    "different": ["different", "same-as-different"],
}
ENDED = {
    "raises": ("failed", "ValueError: no item likes me"),
    "unprintable": ("failed", "ValueError: a path that is no text"),
    "infeasible": ("failed", "(2, 2, 2, 2, 2, 2) does not deal 6 items out."),
    "unprepared": ("failed", "Variant 'unprepared' returned tuple, not Prepared; a func"),
    "refuses": ("failed", "too many items for me"),
    "missing": ("not installed", f"needs {toy.NOT_THERE}"),
    "elsewhere": ("not installed", "needs toy-1.0 (make upstreams)"),
    "aloof": ("not applicable", "It has no part in this."),
}


@pytest.fixture(scope="module")
def calls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("statuses")


@pytest.fixture(scope="module")
def cells(calls_folder: Path) -> dict[str, Cell]:
    """Compare all variants that end in the check, and return their cells."""
    names = [name for names in DECIDED.values() for name in names]
    return compare(*names, *ENDED, folder=calls_folder)


class TestStatuses:
    @pytest.mark.parametrize("decision", DECIDED)
    def test_decisions_are_compared(self, cells, decision):
        """A variant must decide as the one that it is the same as; only then is it timed."""
        for cell in (cells[name] for name in DECIDED[decision]):
            assert (cell.status, cell.reason, cell.decision) == ("ok", None, decision)
            is_equal = cell.fingerprint == cells["reference"].fingerprint
            assert is_equal == (decision in ("reference", "same"))
            assert (cell.cpu_s is None) == (decision == "different")
            assert (cell.ratio is None) == (decision in ("reference", "different"))

    @pytest.mark.parametrize("variant", ENDED)
    def test_what_fails_says_why(self, cells, variant):
        """A failure leaves the others measured, and its cell without results."""
        cell, (status, reason) = cells[variant], ENDED[variant]
        assert cell.status == status
        assert cell.reason.startswith(reason)
        assert (cell.decision, cell.fingerprint, cell.wall_s, cell.ratio) == (None,) * 4

    def test_what_passed_is_timed_against_the_reference(self, cells):
        """The ratio is that of the work, and the verdict that of the ratio."""
        for name in (*DECIDED["same"], "own"):
            cell = cells[name]
            assert len(cell.cpu_s.samples) == len(cell.wall_s.samples) >= 4
            assert cell.verdict == judge(cell.ratio)
            assert cell.verdict_reason
        assert cells["same"].ratio.value < 0.5
        measured = cells["measured"]  # in another process, which says so
        assert measured.ratio.value > 10
        assert (set(measured.wall_s.samples), set(measured.cpu_s.samples)) == ({0.5}, {0.25})
        assert (measured.counters, measured.phases) == ({"dealt": 77}, {"abroad": 0.25})

    def test_a_different_decision_is_called_once(self, cells, calls_folder):
        """A wrong decision costs no more than its check."""
        assert (calls_folder / "different-calls").read_text() == "x"

    def test_cells_have_what_was_measured(self, cells, tmp_path):
        """Figures come from the check; hash randomisation is off; and cells can be stored."""
        cell = cells["same"]
        assert (cell.quality, cells["own"].quality) == ({"fullest": 3.0}, {"fullest": 6.0})
        assert cell.counters == {"dealt": 6, "returned": 0}
        assert cell.phases.keys() == {"other"}
        assert cell.facts["hash_seed"] == "0"
        assert (cell.size_name, cell.size) == ("items", 6.0)
        assert cell.settings.budget == LONG
        here = cell.environment
        assert None not in (here.code, here.packages, here.cpu, here.load, here.seed)
        path = tmp_path / "results.jsonl"
        CellStore(path).add_cells(cells.values())
        assert [entry.value.variant for entry in CellStore(path).entries] == list(cells)
        assert list(cells) == [name for name in toy.TOY.variants if name in cells]
        assert server_children() == []


def test_bad_input_that_shows_in_the_child_is_said_once():
    """A problem that cannot be built ends the comparison."""
    with pytest.raises(UsageError, match="Parameter 'size' of workload 'toy"):
        compare("same", size="-1")
    assert server_children() == []


def test_where_the_reference_has_no_part_the_first_that_has_stands_in():
    """The others are compared with it."""
    cells = compare("same", "own", against="aloof")
    assert {cell.against for cell in cells.values()} == {"same"}
    assert cells["same"].decision == "reference"
    assert cells["own"].ratio is not None
    assert cells["aloof"].status == "not applicable"


@pytest.mark.parametrize(
    ("registry", "times"),
    [(toy_registries.figures_registry, 1), (toy_registries.no_figures_registry, 3)],
)
def test_figures_of_a_problem_are_computed_once_for_all(registry, times, folder):
    """They are computed in a process without variants; where that fails, by each check."""
    cells = compare("same", "own", folder=folder, registry=registry)
    assert len((folder / "worked-out").read_text().splitlines()) == times
    assert {cell.status for cell in cells.values()} == {"ok"}


@pytest.mark.parametrize(("clock", "verdict"), [("cpu", "inconclusive"), ("wall", "slower")])
def test_a_variant_that_waits_is_judged_by_wall_time_alone(clock, verdict):
    """CPU time decides nothing about a call that mostly waits; a family may compare wall time."""
    cells = compare("waits", registry=partial(toy_registries.waiting_registry, clock))
    assert cells["waits"].verdict == verdict
    assert cells["waits"].clock == clock


class TestOverBudget:
    def test_a_call_is_stopped_and_projected(self, folder):
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

    def test_a_reference_over_budget_leaves_the_others_timed(self, folder):
        """They have times, and nothing to compare them with."""
        registry = toy_registries.slow_reference_registry
        cells = compare("same", "own", folder=folder, budget=SHORT, registry=registry)
        assert cells["reference"].status == "over budget"
        for name, decision in (("same", None), ("own", "own")):
            cell = cells[name]
            assert (cell.status, cell.decision) == ("ok", decision)
            assert cell.cpu_s is not None
            assert (cell.ratio, cell.verdict) == (None, None)

    @pytest.mark.parametrize(
        ("variant", "more"),
        [
            ("slow-to-prepare", {}),
            ("reference", {"registry": toy_registries.slow_quality_registry}),
        ],
    )
    def test_what_is_no_part_of_the_call_may_take_longer(self, variant, more):
        """The budget of a call is not that of its set-up or of the rating."""
        cells = compare(variant, budget=SHORT, **more)
        assert {cell.status for cell in cells.values()} == {"ok"}

    def test_what_it_started_is_stopped_too(self, folder):
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
def test_a_failure_while_timing_leaves_the_others_timed(variant, status, reason):
    """The variant that failed is identified, and the others are timed again without it."""
    cells = compare(variant, "same", budget=SHORT if status == "over budget" else LONG)
    cell = cells[variant]
    assert (cell.status, cell.decision, cell.cpu_s) == (status, "same", None)
    assert reason in cell.reason
    assert cells["same"].ratio is not None
    assert server_children() == []


def started(*variants: str, stderr: int = subprocess.DEVNULL, **options: str) -> subprocess.Popen:
    """Start a process that compares variants and prints their cells."""
    here = Path(__file__).parent
    path = [str(folder) for folder in (here, here.parents[1], here.parents[3])]
    script = f"import comparing; comparing.print_cells(*{variants}, **{options})"
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("stage", ["checking", "timing"])
    def test_after_an_interruption(self, folder, stage):
        """An interrupt in any stage ends all child processes."""

        def interrupt(event: Event) -> None:
            is_timed = event.stage == "timing" and event.step > 2
            if event.progress is not None or is_timed:
                assert server_children()
                raise KeyboardInterrupt

        variant = "endless" if stage == "checking" else "same"
        with pytest.raises(KeyboardInterrupt):
            compare(variant, folder=folder, listen=interrupt)
        assert server_children() == []
        if stage == "checking":
            assert ends(left_pid(folder))

    @pytest.mark.parametrize("variant", ["endless", "silent-parent"])
    def test_after_the_parent_was_killed(self, folder, variant):
        """Children see that their parent is gone."""
        with started(variant, folder=str(folder)) as parent:
            try:
                left_pid(folder)
                family = psutil.Process(parent.pid).children(recursive=True)
                assert len(family) >= 2
            finally:
                parent.kill()
        assert all(ends(process.pid) for process in family)


class TestStandardOutput:
    def answer(self, variant: str, **options: str) -> tuple[dict[str, list[str]], str]:
        """Return what a comparison wrote to standard output, as JSON, and to standard error."""
        with started(variant, stderr=subprocess.PIPE, **options) as process:
            out, err = process.communicate(timeout=LONG)
        assert process.returncode == 0, err
        return json.loads(out), err

    def test_it_carries_what_was_asked_for_and_nothing_else(self):
        """What a variant, its processes or a preloaded module print goes to standard error."""
        cells, err = self.answer("prints", preload="noisy_module")
        assert cells == {"reference": ["ok", "reference"], "prints": ["ok", "same"]}
        for noise in ("preparing", "running", "below Python", "of a grandchild"):
            assert noise in err

    def test_a_module_that_cannot_be_preloaded_does_not_disturb_it(self):
        """The variants are compared without it."""
        cells, _ = self.answer("same", preload="broken_module")
        assert cells == {"reference": ["ok", "reference"], "same": ["ok", "same"]}

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest
import toy

from harness.contract.registry import Registry
from harness.execution.bootstrap import Report
from harness.execution.child import Child
from harness.execution.messages import Failed, Note, encode
from harness.execution.server import start_server
from harness.measuring.comparison import Comparison
from harness.measuring.jobs import start_server_for
from harness.measuring.monitor import Event, OverBudget
from harness.measuring.request import Request
from harness.model.cell import Cell, Claim, Progress
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.store.results import append_cells, read_cells
from harness.topologies.lookup import find_topology

# Budgets are either short, for calls that never end, or so long that no call here passes them.
SHORT = 0.5
TOLD = 1.0  # long enough for some looks at the progress
LONG = 60.0

HELPER = Path(__file__).with_name("run_comparison.py")
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HELPER.parent), str(HELPER.parents[2])]),
}


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    """Start the process that children are forked from, so that no budget has to pay for it."""
    start_server_for([toy.TOY])
    with Child(_do_nothing) as process:
        process.receive(LONG)


def _do_nothing(report: Report) -> None:
    pass


def compare(
    *variants: str,
    folder: Path | None = None,
    budget: float = LONG,
    against: str = "",
    registry: Callable[[], Registry] = toy.toy_registry,
    listen: Callable[[Event], None] = lambda event: None,
    **parameters: str,
) -> dict[str, Cell]:
    if folder is not None:
        parameters["folder"] = str(folder)
    workload = WorkloadSpec("toy", parameters)
    topology = find_topology("dgx_a100_80gb", 2)
    request = Request(registry().find("toy"), workload, topology, variants, against)
    rule = SamplingRule(seconds=0.05, least_blocks=2, warmup_seconds=0.05)
    comparison = Comparison(request, Settings(budget, rule), registry)
    return {cell.variant: cell for cell in comparison.run(listen)}


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ends(pid: int, seconds: float = 10.0) -> bool:
    """Wait for a process that may have been killed a moment ago."""
    until = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_running(pid)


def left_pid(folder: Path, name: str = "pid", seconds: float = 30.0) -> int:
    """Return the process id that a variant left in the folder, once it is there."""
    until = time.monotonic() + seconds
    while not (folder / name).exists():
        assert time.monotonic() < until, f"nobody left {name}"
        time.sleep(0.02)
    return int((folder / name).read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for process ids; what still runs at the end is stopped."""
    yield tmp_path
    for path in tmp_path.iterdir():
        if path.name in ("pid", "grandchild") and is_running(int(path.read_text())):
            os.kill(int(path.read_text()), signal.SIGKILL)


def server_children() -> list[psutil.Process]:
    return psutil.Process(forkserver._forkserver._forkserver_pid).children(recursive=True)


@pytest.fixture(scope="module")
def calls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("statuses")


@pytest.fixture(scope="module")
def cells(server: None, calls_folder: Path) -> dict[str, Cell]:
    """One comparison of all variants that come to an end in the check."""
    return compare(
        *("same", "different", "same-as-different", "own", "plain", "unprepared", "raises"),
        *(
            "infeasible",
            "missing",
            "elsewhere",
            "aloof",
            "measured",
            "killed",
            "installed",
            "undisturbed",
        ),
        "installed-raises",
        folder=calls_folder,
    )


class TestStatuses:
    def test_all_that_were_asked_for_are_there_and_the_reference(self, cells: dict[str, Cell]):
        order = [name for name in toy.TOY.variants if name in cells]
        assert list(cells) == order
        assert len(cells) == 17
        assert cells["reference"].decision == "reference"

    @pytest.mark.parametrize(
        ("variant", "decision"),
        [
            ("reference", "reference"),
            ("same", "same"),
            ("plain", "same"),
            ("measured", "same"),
            ("installed", "same"),
            ("undisturbed", "same"),
            ("own", "own"),
            ("different", "different"),
        ],
    )
    def test_decisions(self, cells: dict[str, Cell], variant: str, decision: str):
        cell = cells[variant]
        assert (cell.status, cell.reason, cell.decision) == ("ok", None, decision)
        equal = cell.fingerprint == cells["reference"].fingerprint
        assert equal == (decision in ("reference", "same"))

    @pytest.mark.parametrize(
        ("variant", "reason"),
        [
            ("raises", "ValueError: no item likes me"),
            ("infeasible", "(2, 2, 2, 2, 2, 2) does not deal 6 items out."),
            ("killed", "The child process was killed by signal 9 (SIGKILL) without a result."),
            ("installed-raises", "ValueError: while installed"),
            (
                "unprepared",
                "Variant 'unprepared' returned tuple, not Prepared; a function that decides at "
                "once is registered with @FAMILY.decider.",
            ),
        ],
    )
    def test_failures_say_why(self, cells: dict[str, Cell], variant: str, reason: str):
        cell = cells[variant]
        assert (cell.status, cell.reason) == ("failed", reason)
        assert cell.decision is None
        assert cell.fingerprint is None
        assert cell.wall_s is None
        assert cell.ratio is None

    def test_what_is_not_installed_is_no_failure(self, cells: dict[str, Cell]):
        cell = cells["missing"]
        assert (cell.status, cell.reason) == ("not installed", f"needs {toy.NOT_THERE}")
        assert cell.decision is None
        assert cell.cpu_s is None

    def test_a_real_upstream_says_how_it_is_installed(self, cells: dict[str, Cell]):
        cell = cells["elsewhere"]
        assert (cell.status, cell.reason) == ("not installed", "needs toy-1.0 (make upstreams)")

    def test_what_has_no_part_in_a_problem_is_no_failure(self, cells: dict[str, Cell]):
        cell = cells["aloof"]
        assert (cell.status, cell.reason) == ("not applicable", "It has no part in this.")
        assert cell.decision is None
        assert cell.cpu_s is None

    def test_what_passed_is_timed_against_the_reference(self, cells: dict[str, Cell]):
        reference = cells["reference"]
        assert reference.ratio is None
        assert reference.verdict is None
        for name in ("same", "plain", "own", "measured", "installed", "undisturbed"):
            cell = cells[name]
            assert cell.cpu_s is not None
            assert cell.wall_s is not None
            assert len(cell.cpu_s.samples) == len(cell.wall_s.samples) >= 4
            assert cell.ratio is not None
            assert cell.ratio.low <= cell.ratio.value <= cell.ratio.high
            assert cell.verdict in ("faster", "slower", "same", "inconclusive")
            assert cell.verdict_reason

    def test_much_less_work_takes_less_time(self, cells: dict[str, Cell]):
        assert cells["same"].ratio is not None
        assert cells["same"].ratio.value < 0.5
        assert cells["measured"].ratio is not None
        assert cells["measured"].ratio.value > 10

    def test_times_taken_elsewhere_are_kept(self, cells: dict[str, Cell]):
        cell = cells["measured"]
        assert cell.wall_s is not None
        assert cell.cpu_s is not None
        assert set(cell.wall_s.samples) == {0.5}
        assert set(cell.cpu_s.samples) == {0.25}
        assert cell.counters == {"dealt": 77}
        assert cell.phases == {"abroad": 0.25}

    def test_a_different_decision_is_never_timed(self, cells: dict[str, Cell], calls_folder: Path):
        cell = cells["different"]
        assert cell.fingerprint == "1-0-1-0-1-0"
        assert (cell.wall_s, cell.cpu_s, cell.ratio, cell.verdict) == (None,) * 4
        assert (calls_folder / "different-calls").read_text() == "x"

    def test_the_same_as_a_different_decision_is_different(self, cells: dict[str, Cell]):
        cell = cells["same-as-different"]
        assert cell.fingerprint != cells["reference"].fingerprint
        assert cell.decision == "different"
        assert cell.verdict is None

    def test_quality_counters_and_facts_come_from_the_check(self, cells: dict[str, Cell]):
        cell = cells["own"]
        assert cell.quality == {"fullest": 6.0}
        assert cells["same"].quality == {"fullest": 3.0}
        assert cells["same"].counters == {"dealt": 6, "returned": 0}
        assert cells["same"].phases.keys() == {"other"}
        assert cell.facts["items"] == 6
        assert (cell.size_name, cell.size) == ("items", 6.0)

    def test_plans_do_not_depend_on_hash_randomisation(self, cells: dict[str, Cell]):
        assert cells["same"].facts["hash_seed"] == "0"

    def test_a_cell_says_what_it_is(self, cells: dict[str, Cell], calls_folder: Path):
        cell = cells["same"]
        assert str(cell.id) == f"toy/same@toy[folder={calls_folder}]/dgx_a100_80gb:2"
        assert cell.reference == "reference"
        assert cell.same_as == "reference"
        assert cell.claim == Claim(20, 10, "min")
        assert cell.qualities[0].name == "fullest"
        assert cell.counter_meanings["dealt"] == "items that were dealt out"
        assert cell.settings.budget == LONG
        here = cell.environment
        assert None not in (here.code, here.packages, here.cpu, here.load, here.seed)

    def test_cells_can_be_stored(self, cells: dict[str, Cell], tmp_path: Path):
        path = tmp_path / "results.jsonl"
        append_cells(path, list(cells.values()))
        assert [cell.variant for cell in read_cells(path)] == list(cells)

    def test_nothing_is_left_running(self, cells: dict[str, Cell]):
        assert server_children() == []


def test_the_parent_s_hash_seed_is_as_it_was(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    start_server(())
    assert os.environ["PYTHONHASHSEED"] == "7"
    monkeypatch.delenv("PYTHONHASHSEED")
    start_server(())
    assert "PYTHONHASHSEED" not in os.environ


def test_a_reason_that_utf8_cannot_hold_is_stored(tmp_path: Path):
    cells = compare("unprintable")
    assert cells["unprintable"].status == "failed"
    append_cells(tmp_path / "results.jsonl", list(cells.values()))
    assert cells["reference"].status == "ok"


class TestChoice:
    def test_the_reference_is_always_added(self):
        assert list(compare("own")) == ["reference", "own"]

    def test_an_unknown_variant_is_refused_before_anything_runs(self):
        with pytest.raises(UsageError, match="Unknown variant of family 'toy', 'ownn'; did you me"):
            compare("ownn")

    def test_bad_input_that_shows_in_the_child_is_said_once(self):
        with pytest.raises(UsageError) as refused:
            compare("same", size="-1")
        sentence = "Parameter 'size' of workload 'toy[size=-1]' must be a whole number of at least"
        assert str(refused.value).startswith(sentence)
        assert server_children() == []

    def test_a_variant_that_blames_the_user_leaves_the_others_measured(self):
        cells = compare("refuses", "same")
        cell = cells["refuses"]
        assert (cell.status, cell.reason) == ("failed", "too many items for me")
        assert cells["same"].ratio is not None


class TestListening:
    def test_stages_are_told_in_order(self):
        events: list[Event] = []
        compare("same", listen=events.append)
        checking = [event.variant for event in events if event.stage == "checking"]
        timing = [event.variant for event in events if event.stage == "timing"]
        assert list(dict.fromkeys(checking)) == ["reference", "same"]
        assert set(timing) == {"reference", "same"}
        stages = [event.stage for event in events]
        assert stages == sorted(stages)

    def test_a_check_says_what_it_is_at_and_then_how_long_it_all_takes(self):
        events: list[Event] = []
        compare("same", listen=events.append)
        checking = [event for event in events if event.stage == "checking"]
        assert list(dict.fromkeys(event.doing for event in checking)) == [
            "building the problem", "its set-up", "the call", "what followed its call",
        ]  # fmt: skip
        first = [event.left_s for event in checking if event.variant == "reference"]
        later = [event.left_s for event in events if event not in checking[: len(first)]]
        assert set(first) == {None}
        assert all(left is not None and left >= 0 for left in later)

    def test_progress_is_told(self, folder: Path):
        events: list[Event] = []
        compare("endless", folder=folder, budget=TOLD, listen=events.append)
        told = [event.progress for event in events if event.progress is not None]
        assert told
        assert all(progress.unit == "items" and progress.total == 10_000 for progress in told)
        assert [progress.done for progress in told] == sorted(progress.done for progress in told)


class TestFiguresOfAProblem:
    def test_they_are_worked_out_once_for_all_variants_in_a_process_without_any(self, folder):
        cells = compare("same", "own", folder=folder, registry=toy.figures_registry)
        assert len((folder / "worked-out").read_text().splitlines()) == 1
        assert {cell.quality["least"] for cell in cells.values()} == {3.0}

    def test_one_variant_alone_works_them_out_itself(self, folder):
        compare("reference", folder=folder, registry=toy.figures_registry)
        assert len((folder / "worked-out").read_text().splitlines()) == 1

    def test_where_that_fails_each_check_works_them_out(self, folder):
        cells = compare("same", "own", folder=folder, registry=toy.no_figures_registry)
        assert len((folder / "worked-out").read_text().splitlines()) == 3
        assert {cell.status for cell in cells.values()} == {"ok"}


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


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("stage", ["checking", "timing"])
    def test_after_an_interruption(self, folder: Path, stage: str):
        began = 0

        def interrupt(event: Event) -> None:
            nonlocal began
            if event.stage == "timing":
                began += 1
            if (stage == "checking" and event.progress is not None) or began == 3:
                assert server_children()
                raise KeyboardInterrupt

        variant = "endless" if stage == "checking" else "same"
        with pytest.raises(KeyboardInterrupt):
            compare(variant, folder=folder, listen=interrupt)
        assert server_children() == []
        if stage == "checking":
            assert ends(left_pid(folder))

    @pytest.mark.parametrize("variant", ["killed-parent", "raising-parent"])
    def test_by_a_variant_that_failed_beside_a_process_of_its_own(self, folder: Path, variant: str):
        cell = compare(variant, folder=folder)[variant]
        assert cell.status == "failed"
        assert ends(left_pid(folder, "grandchild"))

    def test_by_a_variant_that_died_beside_its_fork(self, folder: Path):
        # The fork keeps the pipe open that the result would have come through.
        cell = compare("killed-fork", folder=folder, budget=3.0)["killed-fork"]
        assert (cell.status, cell.reason) == (
            "failed",
            "The child process was killed by signal 9 (SIGKILL) without a result.",
        )
        assert ends(left_pid(folder, "grandchild"))

    @pytest.mark.parametrize("variant", ["endless", "silent", "silent-parent"])
    def test_after_the_parent_was_killed(self, folder: Path, variant: str):
        parent = subprocess.Popen(
            [sys.executable, str(HELPER), f"toy[folder={folder}]", str(LONG), variant],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        try:
            left_pid(folder)
            family = psutil.Process(parent.pid).children(recursive=True)
            assert len(family) >= 2
        finally:
            parent.kill()
            parent.wait()
        alive = [process for process in family if not ends(process.pid, seconds=5)]
        for process in alive:
            process.kill()
        assert alive == []


def _send_half_a_message(report: Report) -> None:
    os.write(report._pipe.fileno(), encode(Note("whole"))[:-1])
    os._exit(3)


def test_a_child_that_dies_in_the_middle_of_a_message_has_failed():
    with Child(_send_half_a_message) as process:
        message = process.receive(LONG)
    assert message == Failed("The child process ended with exit code 3 without a result.")


class TestStandardOutput:
    def run(self, variant: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(HELPER), "toy", str(LONG), variant, *arguments],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=LONG,
            check=False,
        )

    def test_it_carries_what_was_asked_for_and_nothing_else(self):
        done = self.run("prints")
        assert done.returncode == 0, done.stderr
        reference, prints = json.loads(done.stdout)
        assert (reference["status"], prints["status"]) == ("ok", "ok")
        assert prints["decision"] == "same"
        for noise in ("preparing", "running", "below Python", "of a grandchild"):
            assert "noise" in done.stderr
            assert noise in done.stderr

    def test_noise_of_an_import_does_not_reach_it(self):
        done = self.run("same", "noisy_module")
        assert done.returncode == 0, done.stderr
        assert [cell["status"] for cell in json.loads(done.stdout)] == ["ok", "ok"]

    def test_a_module_that_cannot_be_preloaded_is_no_failure(self):
        # Only what needs it fails, and says so.
        done = self.run("same", "broken_module")
        assert done.returncode == 0, done.stderr
        assert [cell["status"] for cell in json.loads(done.stdout)] == ["ok", "ok"]


def test_a_registry_may_be_made_of_parts():
    # What travels to the Child must be importable by name; a partial function of it is, too.
    registry = partial(toy.preloading_registry, "json")
    assert compare("same", registry=registry)["same"].status == "ok"


def test_where_the_reference_has_no_part_the_first_that_has_stands_in():
    cells = compare("aloof", "same", "own", against="aloof", size="4")
    assert {cell.against for cell in cells.values()} == {"same"}
    assert cells["same"].decision == "reference"
    assert cells["own"].ratio is not None
    assert cells["aloof"].status == "not applicable"

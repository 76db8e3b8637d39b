"""Comparing variants: the outcome in each cell, and the progress reported meanwhile."""

import os
from functools import partial
from pathlib import Path

import pytest
import toy
from comparing import LONG, TOLD, compare
from processes import server_children

from harness.execution.server import start_server
from harness.measuring.jobs import Event
from harness.measuring.timing.verdict import judge
from harness.model.cell import Cell, Claim
from harness.model.errors import UsageError
from harness.store.cells import CellStore, read_cells


@pytest.fixture(scope="module")
def calls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("statuses")


@pytest.fixture(scope="module")
def cells(server: None, calls_folder: Path) -> dict[str, Cell]:
    """Compare all variants that end in the check, and return their cells."""
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
            assert cell.verdict == judge(cell.ratio)
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
        CellStore(path).add_cells(cells.values())
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
    CellStore(tmp_path / "results.jsonl").add_cells(cells.values())
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
        assert timing
        stages = [event.stage for event in events]
        assert stages == sorted(stages)

    def test_a_check_says_what_it_is_at_and_how_long_it_may_take(self):
        events: list[Event] = []
        compare("same", listen=events.append)
        checking = [event for event in events if event.stage == "checking"]
        assert list(dict.fromkeys(event.doing for event in checking)) == [
            "building the problem", "its set-up", "the call", "what followed its call",
        ]  # fmt: skip
        assert {event.at_most_s for event in checking} == {LONG}

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


@pytest.mark.parametrize(("clock", "verdict"), [("cpu", "inconclusive"), ("wall", "slower")])
def test_a_variant_that_waits_is_judged_by_wall_time_alone(clock, verdict):
    """CPU time decides nothing about a call that mostly waits; a family may compare wall time."""
    cells = compare("waits", registry=partial(toy.waiting_registry, clock))
    assert cells["waits"].verdict == verdict
    assert cells["waits"].clock == clock


def test_a_variant_with_a_pool_of_its_own_is_timed_and_says_how():
    """A pool made in set-up has no threads in a fork, where its calls would never end."""
    cells = compare("pooled", registry=partial(toy.waiting_registry, "cpu"))
    assert cells["pooled"].status == "ok"
    assert cells["pooled"].ratio.way == "turns in one process"
    assert cells["pooled"].remark
    assert not cells["reference"].remark


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

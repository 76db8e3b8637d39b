"""Comparing variants: the outcome in each cell, and the progress told meanwhile."""

from functools import partial
from pathlib import Path

import pytest
import toy
import toy_registries
from comparing import LONG, compare
from processes import server_children

from harness.measuring.timing.verdict import judge
from harness.model.cell import Cell
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
    def test_decisions_are_compared(self, cells: dict[str, Cell], decision: str):
        """A variant must decide as the one that it is the same as; only then is it timed."""
        for cell in (cells[name] for name in DECIDED[decision]):
            assert (cell.status, cell.reason, cell.decision) == ("ok", None, decision)
            is_equal = cell.fingerprint == cells["reference"].fingerprint
            assert is_equal == (decision in ("reference", "same"))
            assert (cell.cpu_s is None) == (decision == "different")
            assert (cell.ratio is None) == (decision in ("reference", "different"))

    @pytest.mark.parametrize("variant", ENDED)
    def test_what_fails_says_why(self, cells: dict[str, Cell], variant: str):
        """A failure leaves the others measured, and its cell without results."""
        cell, (status, reason) = cells[variant], ENDED[variant]
        assert cell.status == status
        assert cell.reason.startswith(reason)
        assert (cell.decision, cell.fingerprint, cell.wall_s, cell.ratio) == (None,) * 4

    def test_what_passed_is_timed_against_the_reference(self, cells: dict[str, Cell]):
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

    def test_a_different_decision_is_called_once(self, cells: dict[str, Cell], calls_folder: Path):
        """A wrong decision costs no more than its check."""
        assert (calls_folder / "different-calls").read_text() == "x"

    def test_cells_have_what_was_measured(self, cells: dict[str, Cell], tmp_path: Path):
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

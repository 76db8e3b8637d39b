"""`shardbench report`: measured within minutes, of one file, and of two."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import toy_registries
from made_up_results import blank_figures

from harness.contract.registry import load_registry
from harness.model.ids import ProblemId
from harness.store.cells import read_cells
from harness.suites.declared import registered_requests
from shardbench.commands.report import growing, headlines

REPORT = ["report", "--seconds", "0.1", "--budget", "30"]


@pytest.fixture
def toys(use_families):
    """Make the toy family, with a large study, the only family; leave figures blank."""
    use_families(toy_registries.bounded_registry)
    with blank_figures():
        yield


def test_a_report_measures_the_suite_once(shardbench, toys):
    """What is stored already is not measured again; large problems are measured on request."""
    code, out, err = shardbench(*REPORT, "--large")
    assert code == 0, err
    assert out.strip().endswith("report/index.html")
    assert "Compared with same" in Path("report/index.html").read_text()
    results = Path("results", "report-large.jsonl")
    assert {cell.purpose for cell in read_cells(results)} == {"against another", "large"}
    before = results.read_bytes()
    _, _, err = shardbench(*REPORT, "--large")
    assert "2 of 2 problem" in err
    assert results.read_bytes() == before


def test_a_report_without_time_is_written_of_what_there_is(shardbench, toys):
    """The end of the minutes is no error, although nothing is measured yet."""
    code, out, err = shardbench(*REPORT, "--minutes", "0.0001")
    assert code == 0, err
    assert Path(out.strip()).stat().st_size
    assert not list(read_cells(Path("results/report.jsonl")))


def test_the_page_is_there_before_anything_is_measured(shardbench, toys, monkeypatch):
    """It shows the record, and what earlier runs measured; then the suite is measured."""
    purposes = []

    def measure(requests, *_, **__):
        assert Path("report/index.html").exists()
        purposes.append([request.purpose for request in requests])

    monkeypatch.setitem(growing.__globals__, "measure", measure)
    code, _, err = shardbench(*REPORT)
    assert code == 0, err
    assert purposes == [[], ["against another"]]


def test_a_page_is_not_written_too_often(monkeypatch):
    """After a page, measuring takes four times as long as writing it took."""
    clock, written = SimpleNamespace(now=0.0), []

    def write():
        written.append(clock.now)
        clock.now += 1.0

    monkeypatch.setitem(growing.__globals__, "time", SimpleNamespace(monotonic=lambda: clock.now))
    grow = growing(write)
    for clock.now in (0.0, 2.0, 4.9, 5.0):
        grow()
    assert written == [0.0, 5.0]


def test_the_headlines_are_measured_first_and_alone():
    """Each system's pair comes first, of times before those of qualities."""
    registry = load_registry()
    requests = headlines(registered_requests(registry.families))
    declared = {
        family.name
        for family in registry.families
        if any(statement.use == "headline" for statement in family.statements)
    }
    assert {request.family.name for request in requests[: len(declared)]} == declared
    for request in requests[: len(declared)]:
        first = next(s for s in request.family.statements if s.use == "headline")
        pair = first.pairs[-1]
        assert request.given == ProblemId.parse(pair.problem)
        assert {pair.before, pair.after} <= set(request.variants)


@pytest.fixture
def results(shardbench) -> str:
    """A results file of two variants."""
    small = ["reshard", "-w", "micro[ops=50,inserts=5]", "-t", "dgx_a100_80gb", "-n", "4"]
    some = ["--variants", "sync-once,delta-sync", "--seconds", "0.05"]
    code, _, err = shardbench("compare", *small, *some, "--results", "results.jsonl")
    assert code == 0, err
    return "results.jsonl"


@pytest.mark.long
def test_flame_graphs_of_each_step_are_made_and_linked(shardbench, results, monkeypatch):
    """--flames profiles today's release and ours, and each step of the published changes."""
    monkeypatch.setitem(growing.__globals__, "_PROFILED_SECONDS", 0.2)
    code, _, err = shardbench("report", results, "--flames")
    assert code == 0, err
    text = Path("report/index.html").read_text()
    pages = sorted(Path("report/flames").iterdir())
    assert len(pages) == 4
    for page in pages:
        assert f'href="flames/{page.name}"' in text
        assert "shardbench profile" in page.read_text()


def test_two_files_make_a_comparison(shardbench, results):
    """The page says what changed from one file to the other."""
    code, _, err = shardbench("report", results, results)
    assert code == 0, err
    assert "As expected: all" in Path("comparison/index.html").read_text()

"""The page of releases: order, ratios, times, the makers of steps, decisions, failures."""

from pathlib import Path

from page_parser import Page

from harness.contract import Releases, Series
from harness.model.cell import Cell, Environment, Ratio, Summary
from harness.model.ids import CellId, ProblemId
from harness.series.points import CALLS
from reports.series import View, release_views, rows
from reports.series_page import data, draw, how_measured, page

PROBLEM = ProblemId.parse("toy[size=3]/dgx_a100_80gb:8")
LIBRARY = Series(
    library="toylib",
    driver=Path("driver.py"),
    problems=(str(PROBLEM),),
    parts={"enumerate": "listing the options"},
    counters={"copies": "copies"},
    releases=Releases(phases=("enumerate", "search")),
)


def release(name, calls, cpu_s=(), share=0.5, plan="a", cost=1.0, ratio=None, load=0.5) -> Cell:
    makers = {f"{CALLS}enumerate {maker}": count for maker, count in calls.items()}
    return Cell(
        id=CellId("toylib", name, PROBLEM),
        reference="1.9.0",
        status="ok",
        cpu_s=Summary.of(cpu_s),
        phases={"enumerate": share, "search": 1 - share},
        fingerprint=plan,
        quality={"cost": cost},
        counters={"copies": len(calls), "enumerate_calls": sum(calls.values()), **makers},
        ratio=ratio,
        environment=Environment(python="3.11", cpu="a CPU", cores=2, load=load),
    )


def missed(name: str, reason: str) -> Cell:
    cell_id = CellId("toylib", name, PROBLEM)
    return Cell(id=cell_id, reference="1.9.0", status="failed", reason=reason)


def view(*cells: Cell) -> View:
    return release_views(LIBRARY, cells)[0]


GROWN = (
    release("1.10.0", {"notes.scan": 900, "copy.deepcopy": 100, "plan.main": 100}, (4.0, 5.0)),
    release("1.9.0", {"plan.main": 100}, (1.0, 5.0)),
)


def test_releases_come_by_version_and_ratios_are_to_the_one_before_and_the_oldest():
    """Releases are ordered by version; older cells name the calls without their part."""
    older = release("1.11.0", {})
    older.counters = {"copies": 1, f"{CALLS}plan.main": 550}
    table = rows(view(*GROWN, older))
    assert [row["release"] for row in table] == ["1.9.0", "1.10.0", "1.11.0"]
    assert [row["calls"] for row in table] == [100, 1100, 550]
    assert [row["times_previous"] for row in table[1:]] == [11.0, 0.5]
    assert [row["times_oldest"] for row in table] == [1.0, 11.0, 5.5]


def test_times_are_medians_parted_by_the_share_of_the_phase():
    """A part's time is its share of the whole, and a high load is told."""
    shown = view(
        release("1.9.0", {"plan.main": 100}, (10.0, 4.0, 8.0), share=0.25),
        release("1.10.0", {"plan.main": 200}, (8.0, 16.0), ratio=Ratio(1.5, 1.25, 2.0), load=2.0),
    )
    keys = [f"{name}_cpu_s{end}" for name in ("profiled", "rest") for end in ("", "_low", "_high")]
    assert [[row[key] for key in keys] for row in rows(shown)] == [
        [2.0, 1.0, 2.5, 6.0, 3.0, 7.5],
        [6.0, 4.0, 8.0, 6.0, 4.0, 8.0],
    ]
    assert [row["ratio"] for row in rows(shown)] == [None, 1.5]
    assert "noisy" in how_measured([shown])


def test_releases_that_failed_are_named_and_left_out_of_ratios():
    """The page, the CSV and the figure have every release; ratios are between those that ran."""
    failed = (missed("1.0", "gone."), missed("1.9.5", "it needs CUDA"), missed("2.0", "gone."))
    shown = [view(*GROWN, *failed)]
    table = data(shown)
    by_name = {row["release"]: row for row in table.to_dict("records")}
    reasons = {name: row["not_run"] for name, row in by_name.items() if row["not_run"]}
    assert reasons == {"1.0": "gone.", "1.9.5": "it needs CUDA", "2.0": "gone."}
    assert by_name["1.10.0"]["times_previous"] == by_name["1.10.0"]["times_oldest"] == 11.0
    drawing = draw(shown, table)
    assert drawing is not None
    parsed = Page(page(shown, table, drawing, "shardbench releases toylib").html())
    assert "1.0 and 2.0 could not be run: gone." in parsed.text
    assert [row[-1] for row in parsed.tables["problem-1-table-1"][1:]].count("not run") == 3
    assert draw([view(GROWN[0])], table) is None

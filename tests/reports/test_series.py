from pathlib import Path

from harness.contract import Releases, Series
from harness.model.cell import Cell, Environment, Ratio, Summary
from harness.model.ids import CellId, ProblemId
from harness.series.points import CALLS
from reports.core.drawing.canvas import Drawing
from reports.series.figure import draw
from reports.series.page import data, how_measured, markdown_page
from reports.series.view import View, findings, release_views, span_of

PROBLEM = ProblemId.parse("toy[size=3]/dgx_a100_80gb:8")
LIBRARY = Series(
    library="toylib",
    driver=Path("driver.py"),
    problems=(str(PROBLEM),),
    parts={"enumerate": "listing the options"},
    counters={"copies": "copies"},
    releases=Releases(phases=("enumerate", "search")),
)


def release(
    name: str,
    calls: dict[str, int],
    cpu_s: tuple[float, ...] = (),
    share: float = 0.5,
    plan: str = "a",
    cost: float = 1.0,
    load: float = 0.5,
    ratio: Ratio | None = None,
) -> Cell:
    counters = {"copies": len(calls)} | {CALLS + maker: count for maker, count in calls.items()}
    return Cell(
        id=CellId("toylib", name, PROBLEM),
        reference="1.9.0",
        status="ok",
        cpu_s=Summary.of(cpu_s),
        phases={"enumerate": share, "search": 1 - share},
        fingerprint=plan,
        quality={"cost": cost},
        counters=counters,
        ratio=ratio,
        verdict="slower" if ratio else None,
        environment=Environment(
            python="3.11", packages={"torch": "2"}, cpu="a CPU", cores=2, load=load
        ),
    )


def missed(name: str, reason: str) -> Cell:
    return Cell(
        id=CellId("toylib", name, PROBLEM), reference="1.9.0", status="failed", reason=reason
    )


def view(*cells: Cell) -> View:
    return release_views(LIBRARY, cells)[0]


def rows(*cells: Cell) -> list[dict[str, float]]:
    return data([view(*cells)]).to_dict("records")


def drawn(*cells: Cell) -> Drawing | None:
    shown = [view(*cells)]
    return draw(shown, data(shown))


GROWN = (
    release("1.10.0", {"notes.scan": 900, "copy.deepcopy": 100, "plan.main": 100}, (4.0, 5.0)),
    release("1.9.0", {"plan.main": 100}, (1.0, 5.0)),
)


def test_releases_come_by_version_and_ratios_are_to_the_one_before_and_the_oldest() -> None:
    table = rows(*GROWN, release("1.11.0", {"plan.main": 550}))
    assert [row["release"] for row in table] == ["1.9.0", "1.10.0", "1.11.0"]
    assert [row["calls"] for row in table] == [100, 1100, 550]
    assert [row["times_previous"] for row in table[1:]] == [11.0, 0.5]
    assert [row["times_oldest"] for row in table] == [1.0, 11.0, 5.5]


def test_a_step_names_who_makes_the_calls_that_were_added() -> None:
    sentences = findings(view(*GROWN))
    assert "11 times the calls of 1.9.0 (1,100 after 100)" in sentences[0]
    assert "90 % of those added are made by notes.scan (900)" in sentences[0]
    assert "1.10.0: copies 1 to 3." in sentences
    assert sentences[-1] == "All 2 releases make the same decision."


def test_small_steps_are_not_reported_and_large_ones_down_are() -> None:
    small = view(release("1.0", {"m.f": 100}), release("1.1", {"m.f": 119}))
    assert not small.large
    down = view(release("1.0", {"m.f": 100}), release("1.1", {"m.f": 10}))
    assert "0.1 times the calls of 1.0 (10 after 100)" in findings(down)[0]


def test_changed_decisions_and_estimates_are_reported() -> None:
    cells = (
        release("1.0", {"m.f": 1}),
        release("1.1", {"m.f": 1}, cost=2.0),
        release("1.2", {"m.f": 1}, plan="b"),
    )
    assert [row["decision"] for row in rows(*cells)] == ["first", "same", "changed"]
    found = view(*cells)
    assert [found.decision(step) for step in found.steps] == ["other estimate", "other plan"]
    assert [text.partition(":")[0] for text in findings(found)[-2:]] == ["1.2", "1.1"]


def test_times_are_medians_parted_by_the_share_of_the_phase() -> None:
    found = view(
        release("1.9.0", {"plan.main": 100}, (10.0, 4.0, 8.0), share=0.25),
        release("1.10.0", {"plan.main": 200}, (8.0, 16.0), ratio=Ratio(1.5, 1.25, 2.0), load=2.0),
    )
    spans = [(span_of(run, "enumerate"), span_of(run, "enumerate", rest=True)) for run in found.ran]
    assert spans[0] == ((2.0, 1.0, 2.5), (6.0, 3.0, 7.5))
    assert spans[1] == ((6.0, 4.0, 8.0), (6.0, 4.0, 8.0))
    assert found.turns == 3
    sentences = " ".join(findings(found))
    assert "3 times the CPU time of enumerate (2.00 s to 6.00 s)" in sentences
    assert "1.5 times as long (1.25 to 2)" in sentences
    assert "noisy" in how_measured([found])
    assert "noisy" not in how_measured([view(release("1.0", {"m.f": 1}, (1.0, 2.0)))])
    assert "not measured" in how_measured([view(release("1.0", {"m.f": 1}))])


def test_releases_that_failed_are_named_and_left_out_of_ratios() -> None:
    failed = (missed("1.0", "gone."), missed("1.9.5", "it needs CUDA"), missed("2.0", "gone."))
    table = {str(row["release"]): row for row in rows(*GROWN, *failed)}
    assert {name: row["not_run"] for name, row in table.items() if row["not_run"]} == {
        "1.0": "gone.",
        "1.9.5": "it needs CUDA",
        "2.0": "gone.",
    }
    assert (table["1.10.0"]["times_previous"], table["1.10.0"]["times_oldest"]) == (11.0, 11.0)
    page = markdown_page([view(*GROWN, *failed)], "shardbench releases toylib", "")
    assert "1.9.5 could not be run: it needs CUDA." in page
    assert "1.0 and 2.0 could not be run: gone." in page
    assert page.count("| not run |") == 3


def test_the_drawing_holds_its_data_and_is_the_same_each_time() -> None:
    drawing, again = drawn(*GROWN), drawn(*GROWN)
    assert drawing is not None
    assert again is not None
    assert drawing.svg == again.svg
    assert drawing.png.startswith(b"\x89PNG")
    for text in ("1.9.0", "1.10.0", "notes", "copy", "enumerate"):
        assert f">{text}" in drawing.svg


def test_nothing_is_drawn_where_nothing_ran() -> None:
    cell = missed("1.0", "no network.")
    assert drawn(cell) is None
    assert findings(view(cell)) == ["1.0 could not be run: no network."]
    assert "not run" in markdown_page([view(cell)], "shardbench releases toylib", "")

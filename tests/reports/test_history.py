from pathlib import Path

import pytest

from harness.contract import Releases
from harness.model.cell import Cell, Environment, Ratio, Summary
from harness.model.ids import CellId, ProblemId
from harness.series.variants import CALLS
from reports.series.releases import (
    Chapter,
    chapters,
    history_findings,
    history_rows,
    ratio_to,
    times_text,
)
from reports.series.releases_page import data, draw, load_note, page

PROBLEM = ProblemId.parse("toy[size=3]/dgx_a100_80gb:8")
LIBRARY = Releases(
    library="toylib",
    driver=Path("driver.py"),
    problems=(str(PROBLEM),),
    profiled="enumerate",
    phases=("enumerate", "search"),
    counters={"copies": "copies"},
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


def chapter(*cells: Cell) -> Chapter:
    return chapters(LIBRARY, cells)[0]


GROWN = (
    release("1.10.0", {"notes.scan": 900, "copy.deepcopy": 100, "plan.main": 100}, (4.0, 5.0)),
    release("1.9.0", {"plan.main": 100}, (1.0, 5.0)),
)


def test_releases_come_by_version_and_ratios_are_to_the_one_before_and_the_oldest() -> None:
    found = chapter(*GROWN, release("1.11.0", {"plan.main": 550}))
    assert [each.name for each in found.releases] == ["1.9.0", "1.10.0", "1.11.0"]
    table = history_rows(found, LIBRARY.counters)
    assert [row["calls"] for row in table] == [100, 1100, 550]
    assert [row["times_previous"] for row in table[1:]] == [11.0, 0.5]
    assert [row["times_oldest"] for row in table] == [1.0, 11.0, 5.5]


def test_a_step_names_who_makes_the_calls_that_were_added() -> None:
    said = history_findings(chapter(*GROWN))
    assert said[0] == (
        "1.10.0: enumerate makes 11 times the calls of 1.9.0 (1,100 after 100); 90 % of those "
        "added are made by notes.scan (900)."
    )
    assert "1.10.0: copies 1 to 3." in said
    assert said[-1] == "All 2 releases decide the same."


def test_small_steps_are_not_told_and_large_ones_down_are() -> None:
    small = chapter(release("1.0", {"m.f": 100}), release("1.1", {"m.f": 119}))
    assert not [text for text in history_findings(small) if "makes" in text]
    down = chapter(release("1.0", {"m.f": 100}), release("1.1", {"m.f": 10}))
    assert (
        history_findings(down)[0]
        == "1.1: enumerate makes 0.1 times the calls of 1.0 (10 after 100)."
    )


def test_changed_decisions_and_estimates_are_told() -> None:
    found = chapter(
        release("1.0", {"m.f": 1}),
        release("1.1", {"m.f": 1}, cost=2.0),
        release("1.2", {"m.f": 1}, plan="b"),
    )
    assert [each.decision for each in found.run] == ["first", "same*", "changed"]
    assert "1.2 decided otherwise than the release before." in history_findings(found)
    assert "* 1.1: the same decision with another estimate." in history_findings(found)


def test_times_are_medians_parted_by_the_share_of_the_phase() -> None:
    found = chapter(
        release("1.9.0", {"plan.main": 100}, (10.0, 4.0, 8.0), share=0.25),
        release("1.10.0", {"plan.main": 200}, (8.0, 16.0), ratio=Ratio(1.5, 1.25, 2.0), load=2.0),
    )
    old, new = found.run
    assert (old.profiled, old.rest) == ((2.0, 1.0, 2.5), (6.0, 3.0, 7.5))
    assert (new.profiled, new.rest) == ((6.0, 4.0, 8.0), (6.0, 4.0, 8.0))
    assert found.rounds == 3
    said = " ".join(history_findings(found))
    assert "and 3 times the CPU time of enumerate (2.00 s to 6.00 s)" in said
    assert "the whole takes 1.5 times as long (1.25 to 2)" in said
    assert "unquiet" in load_note([found])
    assert "unquiet" not in load_note([chapter(release("1.0", {"m.f": 1}, (1.0, 2.0)))])
    assert load_note([chapter(release("1.0", {"m.f": 1}))]) == "CPU times were not measured."


def test_what_was_not_run_is_told_and_left_out_of_ratios() -> None:
    found = chapter(*GROWN, missed("1.9.5", "it needs CUDA"), missed("2.0", "gone."))
    assert [each.name for each in found.run] == ["1.9.0", "1.10.0"]
    assert [each.reason for each in found.releases] == ["", "it needs CUDA.", "", "gone."]
    assert ratio_to(*next(found.steps())) == 11.0
    text = page(LIBRARY, [found], "shardbench releases toylib")
    assert "* 1.9.5 was not run: it needs CUDA." in text
    assert "| `2.0` | — | - | - | — | — | — | not run |" in text


def test_the_oldest_may_be_one_that_was_not_run() -> None:
    found = chapter(missed("1.0", "gone."), *GROWN)
    assert [row.get("times_oldest") for row in history_rows(found, {})] == [None, 1.0, 11.0]
    assert "1.0 was not run: gone." in page(LIBRARY, [found], "shardbench releases toylib")


def test_the_drawing_holds_its_data_and_is_the_same_each_time() -> None:
    found = [chapter(*GROWN)]
    drawing = draw(LIBRARY, found)
    assert drawing is not None
    again = draw(LIBRARY, found)
    assert again is not None
    assert drawing.svg == again.svg
    assert drawing.png.startswith(b"\x89PNG")
    for text in ("1.9.0", "1.10.0", "notes", "copy", "enumerate"):
        assert f">{text}" in drawing.svg
    assert list(data(LIBRARY, found)["calls"]) == [100, 1100]


def test_nothing_is_drawn_where_nothing_was_run() -> None:
    nothing = [chapter(missed("1.0", "no network."))]
    assert draw(LIBRARY, nothing) is None
    assert history_findings(nothing[0]) == ["1.0 was not run: no network."]
    assert "not run" in page(LIBRARY, nothing, "shardbench releases toylib")


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0, "1.00"), (19.44, "19.4"), (float("nan"), "-"), (120.0, "120")]
)
def test_ratios_have_three_digits(ratio: float, text: str) -> None:
    assert times_text(ratio) == text

from pathlib import Path

import pytest

from harness.contract.releases import Releases
from harness.measuring.sampling import Times
from reports.findings.report import findings
from reports.pages.gate import rows
from reports.pages.history import data, load_note, page
from reports.views.history import Chapter, chapters, ratio_to, times_text

PROBLEM = "toy[size=3]/dgx_a100_80gb:8"
LIBRARY = Releases(
    library="toylib",
    driver=Path("driver.py"),
    problems=(PROBLEM,),
    profiled="enumerate",
    phases=("enumerate", "search"),
    counters={"copies": "copies"},
)
ENVIRONMENT = {"python": "3.11", "packages": {"torch": "2"}, "cpu": "a CPU", "cores": 2}


def counts(release: str, calls: dict[str, int], plan: str = "a", cost: float = 1.0) -> Counts:
    return Counts(PROBLEM, release, {"copies": len(calls)}, plan, {"cost": cost}, calls)


def history(*found: Counts | Round | NotRun) -> History:
    made = History("toylib", ENVIRONMENT)
    for each in found:
        made.add(each)
    return made


def chapter(*found: Counts | Round | NotRun) -> Chapter:
    releases = [name for each in found if (name := getattr(each, "release", ""))]
    return chapters(LIBRARY, history(*found), [PROBLEM], releases)[0]


def turn(load: float = 0.5, **cpu: tuple[float, float]) -> Round:
    times = {
        name.strip("v").replace("_", "."): Times(sum(pair), {"enumerate": pair[0], "s": pair[1]})
        for name, pair in cpu.items()
    }
    return Round(PROBLEM, times, load)


GROWN = (
    counts("1.10.0", {"notes.scan": 900, "copy.deepcopy": 100, "plan.main": 100}),
    counts("1.9.0", {"plan.main": 100}),
)


def test_releases_come_by_version_and_ratios_are_to_the_one_before_and_the_oldest() -> None:
    found = chapter(*GROWN, counts("1.11.0", {"plan.main": 550}))
    assert [each.name for each in found.releases] == ["1.9.0", "1.10.0", "1.11.0"]
    table = rows(found, LIBRARY.counters)
    assert [row["calls"] for row in table] == [100, 1100, 550]
    assert [row["times_previous"] for row in table[1:]] == [11.0, 0.5]
    assert [row["times_oldest"] for row in table] == [1.0, 11.0, 5.5]


def test_a_step_names_who_makes_the_calls_that_were_added() -> None:
    said = findings(chapter(*GROWN))
    assert said[0] == (
        "1.10.0: enumerate makes 11 times the calls of 1.9.0 (1,100 after 100); 90 % of those "
        "added are made by notes.scan (900)."
    )
    assert "1.10.0: copies 1 to 3." in said
    assert said[-1] == "All 2 releases decide the same."


def test_small_steps_are_not_told_and_large_ones_down_are() -> None:
    small = chapter(counts("1.0", {"m.f": 100}), counts("1.1", {"m.f": 119}))
    assert not [text for text in findings(small) if "makes" in text]
    down = chapter(counts("1.0", {"m.f": 100}), counts("1.1", {"m.f": 10}))
    assert findings(down)[0] == "1.1: enumerate makes 0.1 times the calls of 1.0 (10 after 100)."


def test_changed_decisions_and_estimates_are_told() -> None:
    found = chapter(
        counts("1.0", {"m.f": 1}),
        counts("1.1", {"m.f": 1}, cost=2.0),
        counts("1.2", {"m.f": 1}, plan="b"),
    )
    assert [each.decision for each in found.run] == ["first", "same*", "changed"]
    assert "1.2 decided otherwise than the release before." in findings(found)
    assert "* 1.1: the same decision with another estimate." in findings(found)


def test_times_are_medians_of_the_rounds_that_all_took_part_in() -> None:
    found = chapter(
        *GROWN,
        turn(v1_9_0=(9.0, 9.0)),
        turn(v1_9_0=(1.0, 5.0), v1_10_0=(4.0, 5.0)),
        turn(v1_9_0=(2.0, 6.0), v1_10_0=(8.0, 5.0), load=2.0),
        turn(v1_9_0=(3.0, 7.0), v1_10_0=(6.0, 5.0)),
    )
    old, new = found.run
    assert old.profiled is not None
    assert (old.profiled.median, old.profiled.low, old.profiled.high) == (2.0, 1.0, 3.0)
    assert new.profiled is not None
    assert new.profiled.median == 6.0
    assert new.rest is not None
    assert new.rest.median == 5.0
    assert "and 3 times the CPU time of enumerate (2.00 s to 6.00 s)" in " ".join(findings(found))
    assert "unquiet" in load_note([found])
    assert "unquiet" not in load_note([chapter(*GROWN, turn(v1_9_0=(1, 1), v1_10_0=(1, 1)))])


def test_what_was_not_run_is_told_and_left_out_of_ratios() -> None:
    found = chapter(*GROWN, NotRun(PROBLEM, "1.9.5", "it needs CUDA."), NotRun("", "2.0", "gone."))
    assert [each.name for each in found.run] == ["1.9.0", "1.10.0"]
    assert [each.reason for each in found.releases] == ["", "it needs CUDA.", "", "gone."]
    assert ratio_to(*next(found.steps())) == 11.0
    text = page(LIBRARY, [found], ENVIRONMENT, "shardbench releases toylib", "")
    assert "not run: it needs CUDA." in text


def test_the_drawing_holds_its_data_and_is_the_same_each_time() -> None:
    found = [chapter(*GROWN, turn(v1_9_0=(1.0, 5.0), v1_10_0=(4.0, 5.0)))]
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
    nothing = [chapter(NotRun("", "1.0", "no network."))]
    assert draw(LIBRARY, nothing) is None
    assert findings(nothing[0]) == []


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0, "1.00"), (19.44, "19.4"), (float("nan"), "-"), (120.0, "120")]
)
def test_ratios_have_three_digits(ratio: float, text: str) -> None:
    assert times_text(ratio) == text

"""The table of `compare`, as a terminal of 80 columns shows it; every number here is invented."""

from typing import Any

import pytest
from rich.console import Console

from harness.model.cell import Cell, Ratio, Summary
from harness.model.ids import CellId
from harness.model.quality import Quality
from harness.model.statement import Statement
from shardbench.display import comparison as display

COST = Quality("max_rank_ms", "ms", "lower", "what it costs")
LEAST = Quality("bound_ms", "ms", "higher", "what it costs at least", bounds="max_rank_ms")
GAP = Quality("gap", "", "lower", "how far the one is from the other")
BOUNDED = (COST, LEAST, GAP)
MIB = 2**20


def cell(variant: str, qualities: tuple[Quality, ...] = BOUNDED, **changes: Any) -> Cell:
    fields = {
        "reference": "double-deepcopy",
        "against": "upstream",
        "status": "ok",
        "qualities": list(qualities),
        "cpu_s": Summary(12.345),
        "wall_s": Summary(12.5),
        "quality": {"max_rank_ms": 118.43, "bound_ms": 110.21, "gap": 0.0746},
        "peak_memory_bytes": 812 * MIB,
        "memory_before_bytes": 500 * MIB,
    }
    return Cell(id=CellId.parse(f"boxing/{variant}@crates/toy_rack:4"), **fields | changes)


STOPPED: dict[str, Any] = {
    "status": "over budget",
    "reason": "stopped after 120 s",
    "cpu_s": None,
    "wall_s": None,
    "quality": {},
    "memory_before_bytes": None,
}
GOAL = Statement(
    "goal",
    "compiled is 200 times faster",
    "crates/toy_rack:4",
    "upstream",
    "compiled",
    at_least=200,
    family="boxing",
)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(display, "installed_statements", lambda: {"boxing": (GOAL,)})


def cells() -> list[Cell]:
    return [
        cell(
            "single-deepcopy",
            decision="same",
            thread_cpu_s=Summary(11.1),
            ratio=Ratio(0.957, 0.9, 1.013),
            verdict="same",
        ),
        cell("upstream", decision="reference"),
        cell(
            "compiled",
            decision="same",
            cpu_s=Summary(0.0512),
            ratio=Ratio(0.00412, 0.00402, 0.00431),
            verdict="faster",
        ),
        cell(
            "certified",
            decision="own",
            ratio=Ratio(12.2, 10.2, 15.1),
            verdict="slower",
            quality={"max_rank_ms": 110.24, "bound_ms": 110.21},
        ),
        cell("copy-if-better", decision="own", ratio=Ratio(1.0, 0.8, 1.3), verdict="inconclusive"),
    ]


def shown(cells: list[Cell], details: bool = False) -> list[str]:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(display.shown(cells, details))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    return [" ".join(line.split()) for line in lines]


def row(lines: list[str], variant: str) -> str:
    (found,) = [line for line in lines if line.split(" ")[0] == variant and "." in line]
    return found


def test_every_row_has_the_bound_and_the_gap():
    lines = shown(cells())
    heading = lines.index("variant CPU s ratio 99 % verdict ≥ bound gap")
    assert "max_rank_ms" in lines[heading - 1]
    assert lines[heading + 1 : heading + 5] == [
        "single-deepcopy 12.3 0.957 ±6 % same, same 118.4 ≥ 110.2 7.5 %",
        "upstream 12.3 - - reference 118.4 ≥ 110.2 7.5 %",
        "compiled 0.0512 0.0041 ±5 % faster, same 118.4 ≥ 110.2 7.5 %",
        "certified 12.3 12.2 ±24 % slower, own 110.2 ≥ 110.2 0.027 %",
    ]


def test_a_bound_from_above_is_written_so():
    speed = Quality("speed", "", "higher", "how fast it is")
    most = Quality("most", "", "lower", "how fast it can be", bounds="speed")
    lines = shown([cell("upstream", (speed, most), quality={"speed": 8.0, "most": 10.0})])
    assert "8 ≤ 10 25.0 %" in row(lines, "upstream")


def test_columns_without_any_value_are_left_out():
    """A family without a bound has no gap, and one cell has no ratio."""
    lines = shown([cell("upstream", (COST,), decision="reference")])
    assert "variant CPU s verdict max_rank_ms" in lines
    assert row(lines, "upstream") == "upstream 12.3 reference 118.4"


def test_where_the_call_compared_with_was_stopped_there_is_its_projection():
    stopped = cell("upstream", **STOPPED, projection_s=3600.0)
    compiled = cell("compiled", decision="own")
    lines = shown([stopped, compiled, cell("failed", status="failed", wall_s=None, cpu_s=None)])
    assert any("times as fast" in line for line in lines)
    assert any(line.startswith("variant CPU s (projected) verdict") for line in lines)
    assert "compiled 12.3 ≥ 288x own 118.4 ≥ 110.2 7.5 %" in lines
    assert not any("faster" in line for line in lines if "goal" not in line and "200" not in line)
    assert any("288 times (projected) projected to be met" in line for line in lines)


def test_without_a_projection_nothing_is_projected():
    lines = shown([cell("upstream", **STOPPED), cell("compiled", decision="own")])
    assert not any("projected" in line for line in lines)


def test_goals_stand_below():
    lines = shown(cells())
    assert lines[lines.index("Goals") + 2] == "compiled is 200 times faster 243 times met"
    assert "Goals" not in shown([cell("upstream")])


@pytest.mark.parametrize("details", [False, True])
def test_memory_is_a_detail(details: bool):
    lines = shown([cell("upstream"), cell("compiled", **STOPPED)], details)
    assert ("Resident memory" in lines) == details
    assert ("upstream 812 312" in lines) == details
    assert ("compiled ≥ 812 -" in lines) == details


@pytest.mark.parametrize("details", [False, True])
def test_wall_time_and_that_of_the_thread_are_details(details: bool):
    lines = shown(cells(), details)
    assert ("Seconds of a call" in lines) == details
    assert ("single-deepcopy 12.5 12.3 11.1" in lines) == details
    assert ("upstream 12.5 12.3 -" in lines) == details


def test_the_document_holds_all_of_it():
    document = display.document(cells())
    assert (document["reference"], document["against"]) == ("double-deepcopy", "upstream")
    assert document["qualities"][1]["bounds"] == "max_rank_ms"
    compiled = document["rows"][2]
    assert compiled["quality"] == {"max_rank_ms": 118.43, "bound_ms": 110.21, "gap": 0.0746}
    assert compiled["peak_memory_bytes"] - compiled["memory_before_bytes"] == 312 * MIB
    (goal,) = document["goals"]
    assert goal == {"goal": GOAL.name, "variant": "compiled", "outcome": "met"}


COUNTERS = {f"a_counter_with_a_long_name_{number}": 10**number for number in range(7)}


def test_counters_that_do_not_fit_beside_each_other_follow_below():
    lines = shown([cell("upstream", counters=COUNTERS), cell("compiled", counters={})], True)
    headings = [line for line in lines if "a_counter_with_a_long_name" in line]
    assert len(headings) > 1
    assert all(line.startswith("variant ") for line in headings)
    assert [name for line in headings for name in line.split(" ")[1:]] == list(COUNTERS)
    counts = [line.split(" ")[1:] for line in lines if line.startswith("upstream ")][3:]
    assert [value for line in counts for value in line] == [f"{n:,}" for n in COUNTERS.values()]

"""The output of `compare` in 80 columns; every number here is invented."""

from typing import Any

import pytest
from rich.console import Console

from harness.model.cell import Cell, CountedWork, Ratio, Summary
from harness.model.ids import CellId
from harness.model.quality import Quality
from harness.model.statement import Statement
from reports.core.columns import cell_table
from shardbench.commands import compare as display

COST = Quality("max_rank_ms", "ms", "lower", "what it costs")
LEAST = Quality("bound_ms", "ms", "higher", "what it costs at least", bounds="max_rank_ms")
GAP = Quality("gap", "", "lower", "how far the one is from the other")
BOUNDED = (COST, LEAST, GAP)
MIB = 2**20
GOAL = Statement(
    "goal",
    "compiled is 200 times faster",
    "crates/toy_rack:4",
    "upstream",
    "compiled",
    at_least=200,
    family="boxing",
)
STOPPED: dict[str, Any] = {
    "status": "over budget",
    "reason": "stopped after 120 s",
    "cpu_s": None,
    "wall_s": None,
    "quality": {},
    "memory_before_bytes": None,
}


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(display, "installed_statements", lambda name: {"boxing": (GOAL,)})


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


def cells() -> list[Cell]:
    ratios = {
        "single-deepcopy": (Ratio(0.957, 0.9, 1.013), "same", "same", 12.345),
        "compiled": (Ratio(0.00412, 0.00402, 0.00431), "faster", "same", 0.0512),
        "certified": (Ratio(12.2, 10.2, 15.1), "slower", "own", 12.345),
    }
    return [
        cell("upstream", decision="reference", counters={"copies": 7, "objects": 0}),
        *(
            cell(name, decision=decision, ratio=ratio, verdict=verdict, cpu_s=Summary(seconds))
            for name, (ratio, verdict, decision, seconds) in ratios.items()
        ),
    ]


def shown(cells: list[Cell], details: bool = False) -> list[str]:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(display.shown(cells, details))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    return [" ".join(line.split()) for line in lines]


def test_every_variant_has_a_row_with_the_bound_and_the_gap():
    """The table shows times, ratios with intervals, verdicts with decisions, and qualities."""
    lines = shown(cells())
    heading = lines.index("variant CPU time ratio 99 % verdict ≥ bound gap")
    assert lines[heading + 1 : heading + 5] == [
        "upstream 12.3 s - - reference 118.4 ≥ 110.2 7.5 %",
        "single-deepcopy 12.3 s 0.957 ±6 % same, same 118.4 ≥ 110.2 7.5 %",
        "compiled 51.2 ms 0.0041 ±5 % faster, same 118.4 ≥ 110.2 7.5 %",
        "certified 12.3 s 12.2 ±24 % slower, own 118.4 ≥ 110.2 7.5 %",
    ]


def test_a_decision_that_must_equal_another_variants_is_named_so():
    """`as NAME`, where the baseline's decision is another one."""
    own = cell("certified", decision="own")
    same = cell("faster", decision="same", same_as="certified", verdict="faster")
    baseline, *others = cells()
    baseline.fingerprint, same.fingerprint = "one plan", "another plan"
    table = cell_table([baseline, *others, own, same], "variant", "verdict")
    assert table.rows[-1][1].text == "faster, as certified"


def test_a_bound_from_above_is_written_so():
    """A quality that is better when higher is at most its bound."""
    speed = Quality("speed", "", "higher", "how fast it is")
    most = Quality("most", "", "lower", "how fast it can be", bounds="speed")
    lines = shown([cell("upstream", (speed, most), quality={"speed": 8.0, "most": 10.0})])
    assert any(line.endswith("8 ≤ 10 25.0 %") for line in lines)


def test_columns_without_any_value_are_left_out():
    """A family without a bound has no gap, and a single cell has no ratio."""
    lines = shown([cell("upstream", (COST,), decision="reference")])
    heading = lines.index("variant CPU time verdict max_rank_ms")
    assert lines[heading + 1] == "upstream 12.3 s reference 118.4"


def test_if_the_baseline_was_stopped_its_projection_is_shown():
    """A projection is marked, and is no ratio."""
    stopped = cell("upstream", **STOPPED, projection_s=3600.0)
    lines = shown([stopped, cell("compiled", decision="own")])
    assert "compiled 12.3 s ≥ 288x own 118.4 ≥ 110.2 7.5 %" in lines
    assert any("288 times (projected) projected to be met" in line for line in lines)
    lines = shown([cell("upstream", **STOPPED), cell("even", decision="own")])
    assert not any("projected" in line for line in lines)


@pytest.mark.parametrize("details", [False, True])
def test_seconds_counts_and_memory_are_details(details: bool):
    """Only `--details` shows other times, counted work, counters and memory."""
    work = CountedWork(12_000, built_in_share=0.25)
    lines = shown([*cells(), cell("stopped", **STOPPED), cell("worked", work=work)], details)
    for line in (
        *("compiled 12.5 s 51.2 ms", "worked 12,000 0 25.0 %", "upstream 812 312"),
        *("stopped ≥ 812 -", "upstream 7 0"),
    ):
        assert (line in lines) == details, line


def test_the_document_has_all_of_it():
    """The JSON document has a row per variant with every stored figure."""
    document = display.document([*cells(), cell("quick")])
    assert (document["reference"], document["against"]) == ("double-deepcopy", "upstream")
    assert document["qualities"][1]["bounds"] == "max_rank_ms"
    row = document["rows"][4]
    assert row["quality"] == {"max_rank_ms": 118.43, "bound_ms": 110.21, "gap": 0.0746}
    assert row["peak_memory_bytes"] - row["memory_before_bytes"] == 312 * MIB

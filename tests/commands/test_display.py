"""The output of `compare` in 80 columns; every number here is invented."""

from typing import Any

import pytest
from rich.console import Console

from harness.model.cell import Cell, Ratio, Summary
from harness.model.ids import CellId
from harness.model.quality import Quality
from harness.model.statement import Statement
from reports.core.columns import cell_table
from shardbench.commands import compare

QUALITIES = (
    Quality("max_rank_ms", "ms", "lower", "what it costs"),
    Quality("bound_ms", "ms", "higher", "what it costs at least", bounds="max_rank_ms"),
)
MIB = 2**20
GOAL = Statement(
    *("goal", "compiled is 200 times faster", "crates/toy_rack:4", "upstream", "compiled"),
    at_least=200,
    family="boxing",
)
STOPPED: dict[str, Any] = {
    "status": "over budget",
    "reason": "stopped after 120 s",
    **dict.fromkeys(("cpu_s", "wall_s", "memory_before_bytes")),
    "quality": {},
}


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare, "installed_statements", lambda family: {"boxing": (GOAL,)})


def cell(variant: str, qualities: tuple[Quality, ...] = QUALITIES, **changes: Any) -> Cell:
    fields = {
        "reference": "double-deepcopy",
        "against": "upstream",
        "status": "ok",
        "qualities": list(qualities),
        "cpu_s": Summary(12.345),
        "wall_s": Summary(12.5),
        "quality": {"max_rank_ms": 118.43, "bound_ms": 110.21},
        "peak_memory_bytes": 812 * MIB,
        "memory_before_bytes": 500 * MIB,
    }
    return Cell(id=CellId.parse(f"boxing/{variant}@crates/toy_rack:4"), **fields | changes)


def cells() -> list[Cell]:
    ratio = Ratio(0.00412, 0.00402, 0.00431)
    quick = {"decision": "same", "ratio": ratio, "verdict": "faster", "cpu_s": Summary(0.0512)}
    return [
        cell("upstream", decision="reference", counters={"copies": 7, "objects": 0}),
        cell("compiled", **quick),
    ]


def shown(cells: list[Cell], details: bool = False) -> list[str]:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(compare.shown(cells, details))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    return [" ".join(line.split()) for line in lines]


def test_every_variant_has_a_row_with_the_bound_and_the_gap():
    """The table shows times, ratios with intervals, verdicts with decisions, and qualities."""
    lines = shown(cells())
    heading = lines.index("variant CPU time ratio 99 % verdict ≥ bound gap")
    assert lines[heading + 1 : heading + 3] == [
        "upstream 12.3 s - - reference 118.4 ≥ 110.2 7.5 %",
        "compiled 51.2 ms 0.0041 ±5 % faster, same 118.4 ≥ 110.2 7.5 %",
    ]


def test_a_decision_that_must_equal_another_variants_is_named_so():
    """`as NAME`, where the baseline's decision is another one."""
    same = cell("faster", decision="same", same_as="certified", verdict="faster", fingerprint="b")
    before, after = cells()
    before.fingerprint = "a"
    table = cell_table([before, after, same], "variant", "verdict")
    assert table.rows[-1][1].text == "faster, as certified"


def test_if_the_baseline_was_stopped_its_projection_is_shown():
    """A projection is marked, and is no ratio."""
    stopped = cell("upstream", **STOPPED, projection_s=3600.0)
    lines = shown([stopped, cell("compiled", decision="own")])
    assert "compiled 12.3 s ≥ 288x own 118.4 ≥ 110.2 7.5 %" in lines
    assert any("288 times (projected) projected to be met" in line for line in lines)

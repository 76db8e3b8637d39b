"""Helpers that judge cells by expectations."""

from typing import Any

from made_up_cells import PROBLEM, cell_of

from harness.gate.expectations import Expectation, Expectations
from harness.gate.judging import GateVerdict, judge_cells
from harness.model.cell import Cell
from harness.model.ids import CellId

QUICK, SLOW = (CellId.parse(f"boxing/{name}@{PROBLEM}") for name in ("quick", "slow"))

EXPECTED = Expectation(
    against="slow",
    decision="same",
    fingerprint="c0ffee",
    quality={"cost": 20.0, "bound": 16.0},
    counters={"copies": 1000, "lookups": 20},
    ratio=(0.3, 0.8),
)


def cells(*lines: dict[str, Any]) -> dict[CellId, Cell]:
    return {cell.id: cell for cell in map(cell_of, lines)}


def expecting(expected: Expectation | None, **of_file: Any) -> Expectations:
    return Expectations({QUICK: expected} if expected else {}, **of_file)


def judge(expected: Expectation | None, *lines: dict[str, Any], **of_file: Any) -> GateVerdict:
    return judge_cells(expecting(expected, **of_file), cells(*lines))


def deviations(verdict: GateVerdict) -> list[tuple[str, str]]:
    return [(each.what, each.kind) for judged in verdict.judged for each in judged.deviations]

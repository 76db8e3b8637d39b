"""The gate's verdict on a commit: what another one decides and counts is expected of it."""

import math

from msgspec import structs

from harness.contract.abilities.history import History
from harness.model.cell import Cell
from harness.model.ids import CellId
from harness.series.running import Run
from harness.suites.expectations import Expectation, Expectations, MadeWith, Rules
from harness.suites.gate import GateVerdict, judge_cells

_ANY = "commit"


def judge(declared: History, before: Run, after: Run, least: float) -> GateVerdict:
    """Judge one commit by another; counts that change by less than a factor are as expected."""
    name = CellId(declared.library, _ANY, before.cell.problem)
    told = {
        counter
        for counter in (*declared.calls, *declared.counters)
        if not _is_small(before.value(counter), after.value(counter), least)
    }
    expected = Expectation(
        fingerprint=before.cell.fingerprint,
        quality=before.cell.quality,
        counters=_only(told, before.cell),
    )
    environment = before.cell.environment
    rules = Rules(made_with=MadeWith(environment.python or "", environment.packages))
    measured = structs.replace(after.cell, id=name, counters=_only(told, after.cell))
    return judge_cells(Expectations({name: expected}, rules), {name: measured})


def _is_small(before: float, after: float, least: float) -> bool:
    if before == after:
        return False
    return before > 0 and after > 0 and abs(math.log(after / before)) < math.log(least)


def _only(names: set[str], cell: Cell) -> dict[str, int]:
    return {name: count for name, count in cell.counters.items() if name in names}

"""Studies of comparisons with another variant than the family's reference."""

from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import toy

from harness.contract import Family
from harness.measuring.request import Request
from harness.model.settings import SamplingRule, Settings
from harness.store.cells import CellStore, read_cells
from harness.suites.declared import registered_requests
from harness.suites.sweep import resumed, sweep, tasks_of

SETTINGS = Settings(60.0, SamplingRule(seconds=0.05, least_blocks=2, warmup_seconds=0.05))


def test_a_study_says_what_it_is_against(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    (family,) = toy.bounded_registry().families

    def planned(family: Family[Any, Any] = family, large: bool = False) -> list[Request]:
        tasks = tasks_of(registered_requests([family], large), SETTINGS)
        return resumed(tasks, CellStore(path))

    requests = planned()
    assert [each.purpose for each in requests] == ["against another"]
    assert [each.is_measured for each in requests] == [False]
    list(sweep(requests, CellStore(path), SETTINGS, registry=toy.bounded_registry))
    cells = read_cells(path)
    assert {cell.variant: cell.against for cell in cells} == {"same": "same", "own": "same"}
    assert [each.is_measured for each in planned()] == [True]

    large = planned(large=True)
    assert [each.purpose for each in large] == ["against another", "large"]
    assert [each.is_measured for each in large] == [True, False]

    other = replaced(family, studies=(replaced(family.studies[0], against="own"),))
    assert [each.is_measured for each in planned(other)] == [False]

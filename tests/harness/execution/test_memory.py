from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy

from harness.execution import memory
from harness.execution.bootstrap import Report
from harness.execution.child import Child
from harness.execution.messages import Result
from harness.measuring.check import check
from harness.measuring.comparison import Comparison
from harness.measuring.jobs import start_server_for
from harness.measuring.request import Request
from harness.measuring.timing.turns import SystemClock
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.topologies.lookup import find_topology

WORKLOAD, TOPOLOGY = WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2)
MIB = 2**20


def in_child(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call `work` in a new process, since memory that this process has freed hides new use."""
    start_server_for([toy.TOY])
    with Child(work, *arguments) as process:
        message = process.receive(60)
    assert isinstance(message, Result), message
    return message.value


def grown(report: Report) -> tuple[int, int]:
    """Return the growth of the peak in bytes since its reset, before and after an allocation."""
    bytearray(80 * MIB)
    before = memory.begin_peak()
    nothing = memory.peak() - before
    bytearray(40 * MIB)
    return nothing, memory.peak() - before


def test_the_peak_is_of_the_call_and_not_of_what_was_before():
    assert Path("/proc/self/clear_refs").exists()
    nothing, of_call = in_child(grown)
    assert nothing < 8 * MIB
    assert 36 * MIB < of_call < 60 * MIB


def test_where_the_system_cannot_forget_there_is_the_peak_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "none" / "clear_refs")
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "status")
    peak = memory.peak()
    assert 10 * MIB < peak < 2**40
    assert memory.begin_peak() >= peak


def checked(name: str, report: Report) -> tuple[int | None, int | None]:
    """Return the peak memory of a checked call and the memory before it, in bytes."""
    problem = toy.build(WORKLOAD, TOPOLOGY)
    found = check(toy.TOY, toy.TOY.variants[name], problem, SystemClock())
    return found.peak_memory_bytes, found.memory_before_bytes


def test_the_checked_call_has_its_peak():
    peak, before = in_child(checked, "hungry")
    assert 0.9 * toy.HUNGER < peak - before < 1.5 * toy.HUNGER, "set-up took twice as much"


def test_a_call_that_was_made_elsewhere_has_none():
    assert in_child(checked, "measured") == (None, None)


def test_cells_hold_it_and_calls_over_budget_the_least_that_it_can_be():
    names = ("hungry", "hungry-endless", "measured", "missing")
    request = Request(toy.TOY, WORKLOAD, TOPOLOGY, names)
    rule = SamplingRule(seconds=0.05, least_blocks=2, warmup_seconds=0.05)
    comparison = Comparison(request, Settings(1.0, rule), toy.toy_registry)
    cells = {cell.variant: cell for cell in comparison.run()}
    hungry, endless = cells["hungry"], cells["hungry-endless"]
    assert hungry.peak_memory_bytes is not None
    assert hungry.memory_before_bytes is not None
    assert hungry.peak_memory_bytes - hungry.memory_before_bytes > 0.9 * toy.HUNGER
    assert endless.status == "over budget"
    assert endless.peak_memory_bytes is not None
    assert endless.peak_memory_bytes > toy.HUNGER
    assert endless.memory_before_bytes is None
    assert endless.progress is None
    for name in ("measured", "missing"):
        assert cells[name].peak_memory_bytes is None

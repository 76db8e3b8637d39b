from pathlib import Path

import pytest
import toy

from harness.execution import memory
from harness.measuring.check import check
from harness.measuring.clock import SystemClock
from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.model.settings import Settings
from harness.topologies.lookup import find_topology

WORKLOAD, TOPOLOGY = WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2)
MIB = 2**20


def test_the_peak_is_of_the_call_and_not_of_what_was_before():
    assert Path("/proc/self/clear_refs").exists()
    bytearray(80 * MIB)
    before = memory.begin_peak()
    assert memory.peak() - before < 8 * MIB
    bytearray(40 * MIB)
    assert 36 * MIB < memory.peak() - before < 60 * MIB


def test_where_the_system_cannot_forget_there_is_the_peak_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "none" / "clear_refs")
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "status")
    peak = memory.peak()
    assert 10 * MIB < peak < 2**40
    assert memory.begin_peak() >= peak


def checked(name: str):
    problem = toy.build(WORKLOAD, TOPOLOGY)
    return check(toy.TOY, toy.TOY.variants[name], problem, SystemClock())


def test_the_checked_call_has_its_peak():
    found = checked("hungry")
    assert found.peak_memory_bytes is not None
    assert found.memory_before_bytes is not None
    of_call = found.peak_memory_bytes - found.memory_before_bytes
    assert 0.9 * toy.HUNGER < of_call < 1.5 * toy.HUNGER, "set-up took twice as much"


def test_a_call_that_was_made_elsewhere_has_none():
    found = checked("measured")
    assert (found.peak_memory_bytes, found.memory_before_bytes) == (None, None)


def test_cells_hold_it_and_calls_over_budget_the_least_that_it_can_be():
    names = ("hungry", "hungry-endless", "measured", "missing")
    request = Request(toy.TOY, WORKLOAD, TOPOLOGY, names)
    comparison = Comparison(request, Settings(1.0), toy.toy_registry)
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

"""The example that captures a training step, run as a reader would run it."""

import json

import pytest
from documented import ROOT, run_python

from harness.measuring.check import check
from harness.measuring.timing.clock import SystemClock
from harness.model.ids import WorkloadSpec
from planners.dtensor import FAMILY

pytestmark = pytest.mark.long

EXAMPLE = ROOT / "docs" / "examples" / "capture_step.py"


def test_a_step_is_captured_and_replayed(tmp_path):
    run_python(str(EXAMPLE), "step.json", folder=tmp_path)
    path = tmp_path / "step.json"
    held = json.loads(path.read_text())
    assert held["ranks"] == 8
    ops = [held["calls"][index]["op"] for index in held["sequence"]]
    assert ops.count("aten.addmm.default") == 2 * 4
    assert "aten.addcdiv_.default" in ops
    workload = WorkloadSpec(str(path))
    problem = FAMILY.work.build(workload, FAMILY.brings(workload))
    assert problem.facts()["ops"] == len(ops)
    for variant in ("upstream", "exact-miss"):
        made = check(FAMILY, FAMILY.find(variant), problem, SystemClock())
        assert made.quality["unlike_recorded"] == 0

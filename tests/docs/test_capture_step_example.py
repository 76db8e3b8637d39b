"""The example that captures a training step, run as a reader would run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.measuring.check import check
from harness.measuring.timing.clock import SystemClock
from harness.model.ids import WorkloadSpec
from planners.dtensor import FAMILY

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "capture_step.py"


def test_a_step_is_captured_and_replayed(tmp_path):
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), "step.json"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=200,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
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

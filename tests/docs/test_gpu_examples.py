"""The scripts that answer what a GPU should, on a CPU; and what they need of CUDA."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from harness.contract import WorkloadSpec
from harness.estimates.steps import SlowestRank
from harness.measuring.jobs import start_server_for
from reports.core.table import as_markdown

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SCRIPTS = ("gpu/estimates.py", "gpu/sharded_step.py", "gpu/tests.py", "memory.py")


def functions_of(script: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / script))


def printed(script: str, *options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / script), *options]
    paths = os.environ | {"PYTHONPATH": str(EXAMPLES.parents[1])}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=paths
    )


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("script", SCRIPTS)
def test_without_a_gpu_a_script_refuses_with_one_sentence(script: str, tmp_path: Path):
    found = printed(script, "--device", "cuda", folder=tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert "no CUDA device" in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr


@pytest.mark.long
def test_a_part_of_the_suite_is_counted(tmp_path: Path):
    here = str(Path(__file__).parents[1] / "harness" / "test_architecture.py")
    found = printed("gpu/tests.py", here, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    passed, failed, _, named = found.stdout.splitlines()[-1].strip("| ").split(" | ")
    assert int(passed) > 5
    assert (failed, named) == ("0", "`-`")


def test_failed_tests_are_named():
    functions = functions_of("gpu/tests.py")
    cases = "".join(f'<testcase classname="a" name="t{n}"><failure/></testcase>' for n in range(12))
    suite = ElementTree.fromstring(f'<testsuite tests="20" skipped="3">{cases}</testsuite>')
    row = as_markdown(functions["tests_table"](suite)).splitlines()[-1]
    assert row.startswith("| 5 | 12 | 3 |")
    assert "a::t9, and others" in row
    assert "a::t10" not in row


@pytest.mark.long
def test_ranks_of_two_plans_are_stepped_and_compared():
    functions = functions_of("gpu/sharded_step.py")
    start_server_for([functions["FAMILY"]])
    spec = functions["sized"]("synthetic[tables=4,seed=1]", 4)
    assert spec == WorkloadSpec.parse("synthetic[tables=4,seed=1,weights=cpu,mib=4]")
    rows = list(functions["rows"](spec, "dgx_h100", "cpu", again=2))
    assert rows[0][1].startswith("upstream")
    for _, _, estimated, slowest, first in rows:
        assert estimated > 0
        assert len(slowest.seconds) == 2
        assert min(slowest.seconds) > 0
        assert first is rows[0][3]
    assert len(as_markdown(functions["steps_table"](rows)).splitlines()) == 2 + len(rows)


def test_a_plan_twice_as_slow_has_a_ratio_of_two():
    slow = SlowestRank(1, (0.2, 0.4, 0.6)).over(SlowestRank(0, (0.1, 0.2, 0.3)))
    assert slow.value == pytest.approx(2)
    assert slow.low <= 2 <= slow.high

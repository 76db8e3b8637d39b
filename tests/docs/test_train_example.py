"""The training example, run as a reader would run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "train_with_plan.py"


def test_two_ranks_train_with_a_plan_as_one_process_does(tmp_path):
    result = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=200,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    *tables, before, after = result.stdout.splitlines()
    assert [line.split()[0] for line in tables] == ["city", "item", "shop", "user"]
    assert {line.split()[1] for line in tables} >= {"row_wise", "table_wise"}
    assert set(re.findall(r"rank (\d+):", "".join(tables))) == {"0", "1"}
    error = r"mean squared error (\d\.\d+), outputs equal: yes"
    (at_first,) = re.findall(f"before the step: {error}", before)
    (at_last,) = re.findall(f"after the step: {error}", after)
    assert float(at_last) < float(at_first)

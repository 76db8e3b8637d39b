"""Real training on four processes: FSDP2, with and without offloading and tensor parallelism."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

HELPERS = Path(__file__).parents[1]


def test_training_on_gloo_is_torchs_to_the_last_bit(tmp_path):
    path = os.pathsep.join(map(str, (HELPERS.parents[1], HELPERS)))
    result = subprocess.run(
        [sys.executable, str(HELPERS / "gloo_trainings.py")],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    stepped = dict(re.findall(r"^(.*), \w+: .*local=(\d+)", result.stdout, re.MULTILINE))
    assert stepped == {
        "fsdp": "6", "offloaded": "6", "mixed": "6", "kept on two ranks": "6", "hybrid": "6",
        "tensor parallel": "4", "both": "4"
    }  # fmt: skip

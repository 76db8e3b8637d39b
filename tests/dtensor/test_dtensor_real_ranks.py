"""Real training on several processes is torch's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


def test_training_on_gloo_is_torchs_to_the_last_bit():
    """FSDP2, offloaded or not, and tensor parallelism train as in torch, on local tensors."""
    result = subprocess.run(
        [sys.executable, str(HERE / "gloo_trainings.py")],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE)))},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    stepped = dict(re.findall(r"^(.*), \w+: .*local=(\d+)", result.stdout, re.MULTILINE))
    assert stepped == {
        "fsdp": "6", "offloaded": "6", "mixed": "6", "kept on two ranks": "6", "hybrid": "6",
        "tensor parallel": "4", "both": "4"
    }  # fmt: skip

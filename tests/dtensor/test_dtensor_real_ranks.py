"""Real training on several processes is torch's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


def output_of(script: str, *arguments: str) -> str:
    """Run a script of this folder, and return its output."""
    result = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE)))},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_training_on_gloo_is_torchs_to_the_last_bit():
    """FSDP2, offloaded or not, and tensor parallelism train as in torch, on local tensors."""
    output = output_of("gloo_trainings.py")
    stepped = dict(re.findall(r"^(.*), \w+: .*local=(\d+)", output, re.MULTILINE))
    assert stepped == {
        "fsdp": "6", "offloaded": "6", "mixed": "6", "kept on two ranks": "6", "hybrid": "6",
        "tensor parallel": "4", "both": "4"
    }  # fmt: skip


@pytest.mark.parametrize("ranks", ["2", "4"])
def test_muon_on_gloo_is_muon_on_whole_matrices(ranks):
    """Weights, momentum, losses and checkpoints are those of whole matrices, to the last bit."""
    output_of("muon_trainings.py", ranks)

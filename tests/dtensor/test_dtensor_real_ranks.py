"""Real training on several processes, and fake ranks that do what real ones do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


def output_of(*command: str) -> str:
    """Run a script of this folder, and return its output."""
    path = os.pathsep.join(map(str, (HERE.parents[1], HERE)))
    result = subprocess.run(
        [sys.executable, str(HERE / command[0]), *command[1:]],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_training_on_gloo_is_torchs_to_the_last_bit():
    """FSDP2, offloaded or not, and tensor parallelism train as in torch, on local tensors."""
    stepped = dict(
        re.findall(r"^(.*), \w+: .*local=(\d+)", output_of("gloo_trainings.py"), re.MULTILINE)
    )
    assert stepped == {
        "fsdp": "6", "offloaded": "6", "mixed": "6", "kept on two ranks": "6", "hybrid": "6",
        "tensor parallel": "4", "both": "4"
    }  # fmt: skip


def test_fake_ranks_call_what_real_ones_call():
    """A training step on fake ranks calls the functions of FSDP2 that it calls on real ranks."""
    fake, real = (json.loads(output_of("fsdp_calls.py", backend)) for backend in ("fake", "gloo"))
    assert fake == real
    assert fake["FSDPParamGroup.pre_forward"] == 3

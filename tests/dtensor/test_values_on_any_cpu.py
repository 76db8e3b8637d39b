"""Fingerprints that include values are the same on CPUs with other instruction sets."""

import os
import subprocess
import sys
from pathlib import Path

from small_world import problem_of

from planners.dtensor import FAMILY

NAMES = ("ops", "mlp", "miss[dims=2]")
OLD_CPU = {"ATEN_CPU_CAPABILITY": "default", "DNNL_MAX_CPU_ISA": "SSE41"}


def fingerprints() -> list[str]:
    found = []
    for name in NAMES:
        prepared = FAMILY.find("upstream").prepared(problem_of(f"{name}/dgx_a100_80gb:8"))
        with prepared.installed():
            prepared.begin()
            found.append(FAMILY.work.fingerprint(prepared.run()))
    return found


def test_a_cpu_without_wide_instructions_makes_the_same():
    """Without AVX, the values of products and sums are the same."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", "import test_values_on_any_cpu as it; print(*it.fingerprints())"],
        env={**os.environ, **OLD_CPU, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = fingerprints()
    assert len(set(found)) == len(NAMES)
    assert done.stdout.split() == found

"""Fingerprints with values in them are the same whatever instructions a CPU has."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY

for name in sys.argv[1:]:
    problem = FAMILY.work.build(WorkloadSpec.parse(name), find_topology("dgx_a100_80gb", 8))
    prepared = FAMILY.find("upstream").prepared(problem)
    with prepared.installed():
        prepared.begin()
        print(FAMILY.work.fingerprint(prepared.run()))
"""
OLD_CPU = {"ATEN_CPU_CAPABILITY": "default", "DNNL_MAX_CPU_ISA": "SSE41"}


def fingerprints(*names: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("names", [("ops", "mlp", "miss[dims=2]")])
def test_a_cpu_without_wide_instructions_makes_the_same(names: tuple[str, ...]):
    found = fingerprints(*names)
    assert len(set(found)) == len(names)
    assert fingerprints(*names, **OLD_CPU) == found

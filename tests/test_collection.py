"""Tests have the same names in every process, without which workers cannot share them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def names_of_tests(seed: int) -> list[str]:
    """Return what a process with this seed for hashes collects."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts="],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.long
def test_names_depend_on_neither_time_nor_hashes():
    """Two processes, of which one starts when the other has ended, collect the same."""
    first, second = names_of_tests(1), names_of_tests(2)
    assert len(first) > 1000
    assert second == first

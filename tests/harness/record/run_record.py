"""Measures a record of the toy family."""

from pathlib import Path

import toy

from harness.suites.record import Record
from harness.suites.recording import Recording

SUITE = """
[[study]]
family = "toy"
workloads = ["toy[size={size}]"]
topologies = ["dgx_a100_80gb:2"]
variants = ["reference", "same", "own", "raises"]
seconds = 0.01
matrix.size = [3, 4]

[[study]]
family = "toy"
workloads = ["toy[size={size}]"]
topologies = ["dgx_a100_80gb:2"]
variants = ["reference", "same"]
once = true
matrix.size = [5, 6, 7]
"""
CELLS = 2 * 4 + 3 * 2


def measure(folder: Path, *device: str, stale: bool = False) -> list[str]:
    """Measure the rest of a record, and return the names of the measured parts."""
    recording = Recording(Record.read(folder, *device), toy.toy_registry, {}, print, stale)
    left = [part for part in recording.parts() if not part.is_measured]
    done = recording.measure(left, lambda part: lambda event: None)
    return [part.name for part in done]

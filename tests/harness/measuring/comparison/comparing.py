"""Runs comparisons of the toy family, and finds processes that they leave behind."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import toy_registries
from processes import is_running

from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.jobs import Event
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.topologies.lookup import find_topology

# Budgets are either short, for calls that never end, or so long that no call here passes them.
SHORT = 0.5

TOLD = 1.0  # long enough for some looks at the progress
LONG = 60.0


def compare(
    *variants: str,
    folder: Path | None = None,
    budget: float = LONG,
    against: str = "",
    registry: Callable[[], Registry] = toy_registries.toy_registry,
    listen: Callable[[Event], None] = lambda event: None,
    **parameters: str,
) -> dict[str, Cell]:
    if folder is not None:
        parameters["folder"] = str(folder)
    workload = WorkloadSpec("toy", parameters)
    topology = find_topology("dgx_a100_80gb", 2)
    request = Request(registry().find("toy"), workload, topology, variants, against)
    rule = SamplingRule(seconds=0.05, least_blocks=2, warmup_seconds=0.05)
    comparison = Comparison(request, Settings(budget, rule), registry)
    return {cell.variant: cell for cell in comparison.run(listen)}


def print_cells(*variants: str, preload: str = "", **parameters: str) -> None:
    """Compare, and print the status and the decision of each cell as JSON."""
    registry = (
        partial(toy_registries.preloading_registry, preload)
        if preload
        else toy_registries.toy_registry
    )
    cells = compare(*variants, registry=registry, **parameters)
    print(json.dumps({name: [cell.status, cell.decision] for name, cell in cells.items()}))


def ends(pid: int) -> bool:
    """Wait up to ten seconds for a process to end; return whether it ended."""
    until = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_running(pid)


def left_pid(folder: Path, name: str = "pid") -> int:
    """Wait for the process id that a variant writes to the folder, and return it."""
    until = time.monotonic() + 30
    while not (folder / name).exists():
        assert time.monotonic() < until, f"nobody left {name}"
        time.sleep(0.02)
    return int((folder / name).read_text())

"""Script: sweep over the toy family, in a process that a test may kill at any moment.

python run_sweep.py RESULTS
"""

import sys
from pathlib import Path

import toy
import toy_registries

from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.store.cells import CellStore, read_cells
from harness.store.lines import hold
from harness.suites.declared import merged
from harness.suites.sweep import Finished, resumed, sweep, tasks_of
from harness.topologies.lookup import find_topology

SETTINGS = Settings(60.0, SamplingRule(seconds=0.01, least_blocks=2, most_blocks=2))
VARIANTS = ("same", "different", "own", "raises", "missing", "aloof", "same-as-different")
SIZES = (3, 4)


def requests() -> list[Request]:
    topology = find_topology("dgx_a100_80gb", 2)
    requests = [
        Request(toy.TOY, WorkloadSpec("toy", {"size": str(size)}), topology, VARIANTS, against)
        for size, against in zip(SIZES, ("reference", "aloof"), strict=True)
    ]
    return merged(requests)


def left(path: Path, requests: list[Request], several: bool = False) -> list[Request]:
    """Return requests with the cells that a file has of them."""
    return resumed(tasks_of(requests, SETTINGS, several), CellStore(path))


def swept(path: Path, requests: list[Request], at_once: int = 2) -> list[Finished]:
    """Measure what is left of requests."""
    options = {"registry": toy_registries.toy_registry, "at_once": at_once}
    return list(sweep(left(path, requests), CellStore(path), SETTINGS, **options))


def assert_whole(path: Path) -> None:
    """Assert that a file has each cell of `requests` once."""
    stored = [str(cell.id) for cell in read_cells(path)]
    wanted = {str(each.cell_id(name)) for each in requests() for name in each.names()}
    assert sorted(stored) == sorted(wanted)


def main(path: str) -> None:
    with hold(Path(path)):
        swept(Path(path), requests(), at_once=1)


if __name__ == "__main__":
    main(*sys.argv[1:])

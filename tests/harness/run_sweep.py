"""Script: sweep over the toy family, in a process that a test may kill at any moment.

python run_sweep.py RESULTS [WORKERS]
"""

import sys
from pathlib import Path

import toy

from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.store.cells import CellStore
from harness.store.lines import hold
from harness.suites.declared import merged
from harness.suites.sweep import resumed, sweep, tasks_of
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


def main(path: str, workers: str = "") -> None:
    results = Path(path)
    store = CellStore(results)
    with hold(results):
        assert all(damage.torn for damage in store.damaged)
        left = resumed(tasks_of(requests(), SETTINGS), store)
        at_once = int(workers or 1)
        for _ in sweep(left, store, SETTINGS, registry=toy.toy_registry, at_once=at_once):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])

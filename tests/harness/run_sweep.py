"""Script: sweep over the toy family, in a process that a test may kill at any moment.

python run_sweep.py RESULTS [WORKERS]
"""

import sys
from pathlib import Path

import toy

from harness.measuring.environment import environment
from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.store.cells import CellStore
from harness.store.lines import hold
from harness.suites.executors import LocalProcesses
from harness.suites.sweep import Workers, merged, resumed, sweep, tasks_of
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
    pool = LocalProcesses(int(workers)) if workers else None
    try:
        with hold(results):
            assert store.set_damaged_aside() == []
            held = Workers(environment(SETTINGS.sampling.seed), pool, lambda: int(workers or 1))
            left = resumed(tasks_of(requests(), SETTINGS), store)
            for _ in sweep(left, store, SETTINGS, registry=toy.toy_registry, workers=held):
                pass
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

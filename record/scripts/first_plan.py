"""How long the first plan of a process takes, and a later one: python record/scripts/first_plan.py

Each plan is made by a process of its own, for `TABLESxRANKS` (several sizes if none is given). Cold
means that no kernel is compiled yet; times are seconds on the clock, the median of the processes.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from tempfile import TemporaryDirectory

from common import gpus_of, in_new_process, model_of, print_table, timed
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

from shardbench import Planner

SIZES = ("4x2", "12x2", "12x16", "40x16", "200x64")
PROCESSES = 3
HBM_MIB = 32 * 2**10
COLUMNS = (
    "tables x ranks", "TorchRec, first", "later", "cold", "warm", "later", "best-plan, cold", "warm"
)  # fmt: skip


def plan(mode: str, size: str) -> tuple[float, float]:
    """Plan twice with new planners, and return the seconds of both calls."""
    tables, ranks = map(int, size.split("x"))
    model, topology = model_of(range(tables)), gpus_of(ranks, HBM_MIB)
    common = {"topology": topology, "debug": False, "stats": []}

    def planned() -> None:
        planner = Planner(**common, mode=mode) if mode else EmbeddingShardingPlanner(**common)
        planner.plan(model, [EmbeddingBagCollectionSharder()])

    return timed(planned, time.perf_counter)[1], timed(planned, time.perf_counter)[1]


def measure(mode: str, size: str, cache: str | None = None) -> list[str]:
    """Return the seconds of the first call and of a later one; without `cache` it is cold."""
    times = []
    for _ in range(PROCESSES):
        with TemporaryDirectory() as cold:
            times.append(in_new_process(plan, mode, size, NUMBA_CACHE_DIR=cache or cold))
    return [f"{median(calls):.3f}" for calls in zip(*times, strict=True)]


def rows(sizes: tuple[str, ...]) -> Iterator[list[str]]:
    """Compile all kernels, and yield a row for each size."""
    with TemporaryDirectory() as warm:
        command = [sys.executable, "-m", "planners.embedding.search.warm_up"]
        variables = os.environ | {"NUMBA_CACHE_DIR": warm}
        subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)
        for size in sizes:
            torchrec = measure("", size)
            cold, _ = measure("same-plan", size)
            best_cold, _ = measure("best-plan", size)
            best_warm, _ = measure("best-plan", size, warm)
            ours = measure("same-plan", size, warm)
            yield [size, *torchrec, cold, *ours, best_cold, best_warm]


if __name__ == "__main__":
    print_table(COLUMNS, rows(tuple(sys.argv[1:]) or SIZES))

"""How long a restart waits for its plan: python record/scripts/plan_cache.py [TABLESxGPUS]

Each plan is made by a process of its own: one without a cached plan, some with it (hits), and some
on machines that report a little less memory (near hits). Times are seconds on the clock for
`Planner(...)` and its `plan`, without imports; of several processes, the median.
"""

import sys
import time
from collections.abc import Iterator
from statistics import median
from tempfile import TemporaryDirectory

from common import gpus_of, in_new_process, model_of, print_table, timed
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

from shardbench import PlanCache, Planner

COLUMNS = ("problem", "from the cache", "seconds", "slowest rank's ms", "bound ms")
SIZE, HBM_MIB = "1000x128", 32 * 2**10
LESS_MIB = {"no cached plan": [0], "the same problem": [0, 0, 0], "less memory": [14, 28, 42]}
"""The memory that each process's GPUs lack, by kind of plan."""


def plan(folder: str, size: str, less_mib: int) -> tuple[float, str, float, float]:
    """Plan on GPUs with a little less memory; return the seconds, the cache's use, ms and bound."""
    tables, gpus = map(int, size.split("x"))
    model, topology = model_of(range(tables)), gpus_of(gpus, HBM_MIB - less_mib)

    def planned() -> Planner:
        cache = PlanCache(folder)
        planner = Planner(topology, debug=False, stats=[], mode="best-plan", cache=cache)
        planner.plan(model, [EmbeddingBagCollectionSharder()])
        return planner

    planner, seconds = timed(planned, time.perf_counter)
    rating = planner._perf_model.rate(planner.get_selected_options())
    return seconds, planner.from_cache or "nothing", rating, planner.bound_ms


def rows(size: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of plan."""
    with TemporaryDirectory() as folder:
        for kind, less_mib in LESS_MIB.items():
            plans = [in_new_process(plan, folder, size, mib) for mib in less_mib]
            _, use, rating, bound = plans[-1]
            seconds = median(seconds for seconds, *_ in plans)
            yield kind, use, f"{seconds:.2f}", f"{rating:.5g}", f"{bound:.5g}"


if __name__ == "__main__":
    print_table(COLUMNS, rows(sys.argv[1] if sys.argv[1:] else SIZE), texts=2)

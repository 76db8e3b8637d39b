"""How much of a plan moves after a small change: python record/scripts/stability.py [TABLESxGPUS]

Plans a model, and the same model after each small change, each time in a new process. Prints the
share of the bytes that move from the first plan to the second, and the slowest rank's milliseconds
in the second plan, relative to TorchRec's default plan. The cache has the first plan.
"""

import pickle
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from common import gpus_of, in_new_process, model_of, print_table
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer

from planners.embedding.plan_files.table import PlanTable
from shardbench import PlanCache, Planner

SIZE, HBM_MIB = "60x16", 1600
BEST_PLAN = partial(Planner, mode="best-plan")
PLANNERS: dict[str, Callable[..., EmbeddingShardingPlanner]] = {
    "TorchRec, its default proposers": EmbeddingShardingPlanner,
    "TorchRec, `GreedyProposer`": lambda **given: EmbeddingShardingPlanner(
        proposer=GreedyProposer(), **given
    ),
    "`Planner`, same-plan, the same proposer": lambda **given: Planner(
        proposer=GreedyProposer(), **given
    ),
    '`Planner`, mode="best-plan"': BEST_PLAN,
    '`Planner`, mode="best-plan", with a cache': BEST_PLAN,
}
CHANGES = (
    "a host has 14 MiB less", "another order of tables", "another hash seed", "one more table"
)  # fmt: skip


def plan(name: str, change: str, folder: Path, size: str) -> tuple[float, float]:
    """Plan the changed model; return the share that moves from the plan in `folder`, and the ms."""
    tables, gpus = map(int, size.split("x"))
    numbers = range(tables + (change == "one more table"))
    topology = gpus_of(gpus, HBM_MIB)
    if change == "a host has 14 MiB less":
        for device in topology.devices[-8:]:
            device.storage.hbm -= 14 * 2**20
            device.storage.ddr -= 14 * 2**20
    model = model_of(reversed(numbers) if change == "another order of tables" else numbers)
    cache = {"cache": PlanCache(folder)} if "with a cache" in name else {}
    planner = PLANNERS[name](topology=topology, debug=False, stats=[], **cache)
    decision = planner.plan(model, [EmbeddingBagCollectionSharder()])
    first, share = folder / "first.pickle", 0.0
    if change:
        previous = PlanTable.of(pickle.loads(first.read_bytes()))
        known = previous.match(option.fqn for option in planner._best_plan)
        options = [option for option in planner._best_plan if option.fqn in known]
        sizes = (shard.size for option in options for shard in option.shards)
        weights = 4 * sum(rows * columns for rows, columns in sizes)
        share = previous.bytes_moved(options, gpus) / weights
    else:
        first.write_bytes(pickle.dumps(decision))
    return share, planner._perf_model.rate(planner._best_plan)


def rows(size: str) -> Iterator[list[str]]:
    """Yield a row for each planner."""
    theirs: dict[str, float] = {}
    for name in PLANNERS:
        row = [name]
        with TemporaryDirectory() as folder:
            in_new_process(plan, name, "", Path(folder), size, PYTHONHASHSEED="0")
            for change in CHANGES:
                seed = "1" if change == "another hash seed" else "0"
                share, ms = in_new_process(
                    plan, name, change, Path(folder), size, PYTHONHASHSEED=seed
                )
                row.append(f"{100 * share:.3g} %, {ms / theirs.setdefault(change, ms):.2f}")
        yield row


if __name__ == "__main__":
    print_table(("planner", *CHANGES), rows(sys.argv[1] if sys.argv[1:] else SIZE))

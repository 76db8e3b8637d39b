"""How much of a plan moves after a small change: python docs/examples/stability.py

Plans a model, and the same model after each small change, each time in a new process. Prints the
share of the bytes that move from the first plan to the second, and the slowest rank's milliseconds
in the second plan, relative to TorchRec's default plan. The cache has the first plan.
"""

import argparse
import json
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from plan_cache import MIB, model_of, topology_of

PLANNERS = {
    "default": "TorchRec, its default proposers",
    "upstream": "TorchRec, `GreedyProposer`",
    "compiled": "`Planner`, same-plan, the same proposer",
    "certified": '`Planner`, mode="best-plan"',
    "cached": '`Planner`, mode="best-plan", with a cache',
}
CHANGES = {
    "less memory": "a host has 14 MiB less",
    "order": "another order of tables",
    "hash seed": "another hash seed",
    "one more table": "one more table",
}


def planner_of(name: str, topology: Any, folder: Path) -> Any:
    """Return a new planner."""
    from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
    from torchrec.distributed.planner.proposers import GreedyProposer

    from shardbench import PlanCache, Planner

    common = {"topology": topology, "debug": False, "stats": []}
    if name == "default":
        return EmbeddingShardingPlanner(**common)
    if name == "upstream":
        return EmbeddingShardingPlanner(**common, proposer=GreedyProposer())
    if name == "compiled":
        return Planner(**common, proposer=GreedyProposer())
    cache = PlanCache(folder) if name == "cached" else None
    return Planner(**common, mode="best-plan", cache=cache)


def plan(name: str, change: str, folder: Path, tables: int, gpus: int, hbm_mib: int) -> None:
    """Plan the changed model; print the share that moves from the plan in `folder`, and the ms."""
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    from planners.embedding.plan_files.previous import previous_plan

    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    numbers = list(range(tables + (change == "one more table")))
    topology = topology_of(gpus, hbm_mib * MIB)
    if change == "less memory":
        for device in topology.devices[-8:]:
            device.storage.hbm -= 14 * MIB
            device.storage.ddr -= 14 * MIB
    model = model_of(numbers[::-1] if change == "order" else numbers)
    planner = planner_of(name, topology, folder)
    found = planner.plan(model, [EmbeddingBagCollectionSharder()])
    first, share = folder / f"{name}.pickle", 0.0
    if change == "nothing":
        first.write_bytes(pickle.dumps(found))
    else:
        previous = previous_plan(pickle.loads(first.read_bytes()))
        known = previous.matched(option.fqn for option in planner._best_plan)
        options = [option for option in planner._best_plan if option.fqn in known]
        sizes = (shard.size for option in options for shard in option.shards)
        weights = 4 * sum(rows * columns for rows, columns in sizes)
        share = previous.bytes_moved(options, gpus) / weights
    print(json.dumps([share, planner._perf_model.rate(planner._best_plan)]))


def main() -> None:
    """Print a row for each planner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--gpus", type=int, default=16)
    parser.add_argument("--hbm-mib", type=int, default=1600, help="of each GPU")
    asked = parser.parse_args()

    def planned(name: str, change: str, folder: str) -> list[float]:
        numbers = map(str, (asked.tables, asked.gpus, asked.hbm_mib))
        done = subprocess.run(
            [sys.executable, __file__, "--plan", name, change, folder, *numbers],
            env={**os.environ, "PYTHONHASHSEED": "1" if change == "hash seed" else "0"},
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1])

    print(f"| planner | {' | '.join(CHANGES.values())} |")
    print(f"| --- |{' ---: |' * len(CHANGES)}", flush=True)
    theirs: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PLANNERS.items():
            planned(name, "nothing", folder)
            cells = []
            for change in CHANGES:
                share, ms = planned(name, change, folder)
                ratio = ms / theirs.setdefault(change, ms)
                cells.append(f"{100 * share:.3g} %, {ratio:.2f}")
            print(f"| {text} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:
        name, change, folder, *numbers = sys.argv[2:]
        plan(name, change, Path(folder), *map(int, numbers))
    else:
        main()

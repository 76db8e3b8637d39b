"""How long a restart waits for its plan with a cache: python docs/examples/plan_cache.py

Each plan is made by a process of its own: one without a cached plan, some with it (hits), and some
on machines that report a little less memory (near hits). Times are seconds on the clock for
`Planner(...)` and its `plan`, without imports; of several processes, the median.
"""

import argparse
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

MIB = 2**20


def model_of(numbers: Sequence[int]) -> Any:
    """Return a model with the numbered tables, in this order."""
    import torch
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

    tables = []
    for number in numbers:
        draw = random.Random(number)
        tables.append(
            EmbeddingBagConfig(
                name=f"table_{number}",
                num_embeddings=int(10 ** draw.uniform(3, 7)),
                embedding_dim=draw.choice([16, 32, 64, 128]),
                feature_names=[f"feature_{number}"],
            )
        )
    model = torch.nn.Module()
    model.sparse = EmbeddingBagCollection(tables, device=torch.device("meta"))
    return model


def topology_of(gpus: int, hbm: int) -> Any:
    """Return GPUs of `hbm` bytes, eight on each host."""
    from torchrec.distributed.planner.types import Topology

    return Topology(gpus, "cuda", local_world_size=min(8, gpus), hbm_cap=hbm)


def plan(folder: str, tables: int, gpus: int, less_mib: int) -> dict[str, object]:
    """Plan with a new planner on GPUs with a little less memory; return the seconds and more."""
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    from shardbench import PlanCache, Planner

    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    model, topology = model_of(range(tables)), topology_of(gpus, 32 * 2**30 - less_mib * MIB)
    began = time.perf_counter()
    planner = Planner(topology, debug=False, stats=[], mode="best-plan", cache=PlanCache(folder))
    planner.plan(model, [EmbeddingBagCollectionSharder()])
    return {
        "seconds": time.perf_counter() - began,
        "use": planner.from_cache,
        "ms": planner._perf_model.rate(planner.get_selected_options()),
        "bound": planner.bound_ms,
    }


def main() -> None:
    """Print one line for each kind of plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=128)
    parser.add_argument("--processes", type=int, default=3, help="of each kind")
    asked = parser.parse_args()

    def planned(folder: str, less_mib: int) -> dict[str, float]:
        arguments = map(str, (asked.tables, asked.gpus, less_mib))
        command = [sys.executable, __file__, "--plan", folder, *arguments]
        done = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            "no cached plan": [planned(folder, 0)],
            "the same problem": [planned(folder, 0) for _ in range(asked.processes)],
            "less memory": [planned(folder, 14 * n + 14) for n in range(asked.processes)],
        }
    print(f"{asked.tables} tables on {asked.gpus} GPUs, mode best-plan")
    print("| problem | from the cache | seconds | slowest rank's ms | bound ms |")
    print("| --- | --- | ---: | ---: | ---: |")
    for kind, plans in kinds.items():
        seconds = statistics.median(each["seconds"] for each in plans)
        last = plans[-1]
        print(
            f"| {kind} | {last['use'] or 'nothing'} | {seconds:.2f} | {last['ms']:.5g} "
            f"| {last['bound']:.5g} |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:
        folder, *numbers = sys.argv[2:]
        print(json.dumps(plan(folder, *map(int, numbers))))
    else:
        main()

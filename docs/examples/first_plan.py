"""How long the first plan of a process takes, and a later one: python docs/examples/first_plan.py

Each plan is made by a process of its own, for `TABLES x RANKS` (several sizes where none is
given). Cold means that no kernel is compiled yet; times are seconds on the clock, the median of the
processes.
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

SIZES = ("4x2", "12x2", "12x16", "40x16", "200x64")
FEW = "40x16"  # from here on one call of TorchRec takes seconds


def plan(kind: str, tables: int, ranks: int, calls: int) -> list[float]:
    """Plan with a new planner, some times over, and return the seconds of each call."""
    import torch
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
    from torchrec.distributed.planner.types import Topology
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

    from shardbench import Planner

    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    draw = random.Random(7)
    model = torch.nn.Module()
    model.sparse = EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            EmbeddingBagConfig(
                name=f"table_{number}",
                num_embeddings=int(10 ** draw.uniform(3, 7)),
                embedding_dim=draw.choice([16, 32, 64, 128]),
                feature_names=[f"feature_{number}"],
            )
            for number in range(tables)
        ],
    )
    topology = Topology(ranks, compute_device="cuda", local_world_size=min(8, ranks))
    seconds = []
    for _ in range(calls):
        began = time.perf_counter()
        if kind == "torchrec":
            planner = EmbeddingShardingPlanner(topology, debug=False, stats=[])
        else:
            planner = Planner(topology, debug=False, stats=[], mode=kind)
        planner.plan(model, [EmbeddingBagCollectionSharder()])
        seconds.append(time.perf_counter() - began)
    return seconds


def measure(size: str, kind: str, cache: str | None, calls: int, processes: int) -> list[float]:
    """Return the seconds of the first call and of a later one; without `cache` it is cold."""
    found = []
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as cold:
            done = subprocess.run(
                [sys.executable, __file__, "--plan", kind, size, str(calls)],
                env={**os.environ, "NUMBA_CACHE_DIR": cache or cold},
                stdout=subprocess.PIPE,
                check=True,
            )
        first, *later = json.loads(done.stdout)
        found.append((first, min(later, default=first)))
    return [statistics.median(each) for each in zip(*found, strict=True)]


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=SIZES, metavar="TABLESxRANKS")
    parser.add_argument("--processes", type=int, default=3, help="of each kind")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as warm:
        environment = {**os.environ, "NUMBA_CACHE_DIR": warm}
        command = [sys.executable, "-m", "planners.embedding.search.warm_up"]
        began = time.perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        print(f"All kernels were compiled in {time.perf_counter() - began:.1f} s.")
        print("             first call                       | later calls     | best-plan")
        print("      size   TorchRec  ours, cold  ours, warm | TorchRec   ours | cold   warm")
        for size in asked.sizes:
            few = SIZES.index(size) >= SIZES.index(FEW) if size in SIZES else True
            calls, processes = (2, 1) if few else (6, asked.processes)
            first, later = measure(size, "torchrec", warm, calls, processes)
            cold, _ = measure(size, "same-plan", None, 1, asked.processes)
            ours, ours_later = measure(size, "same-plan", warm, 6, asked.processes)
            best_cold, _ = measure(size, "best-plan", None, 1, 1)
            best, _ = measure(size, "best-plan", warm, 1, 1)
            print(
                f"{size:>10} {first:10.3f} {cold:11.3f} {ours:11.3f} |{later:9.3f} "
                f"{ours_later:6.3f} |{best_cold:5.1f} {best:6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:
        kind, size, calls = sys.argv[2:]
        tables, ranks = map(int, size.split("x"))
        print(json.dumps(plan(kind, tables, ranks, int(calls))))
    else:
        main()

"""Replanning after a loss of hosts: python docs/examples/replanning.py TABLESxGPUS...

Plans on all GPUs, loses one host in 64, and plans for the GPUs left: once with a budget of a tenth
of the weights, and once with any number of bytes moved. Prints a row per plan in Markdown.
Each plan is made in a process of its own. CPU time and memory are those of the planner's call,
with its options, moves and bound; memory includes the model and the libraries.
"""

import logging
import multiprocessing
import resource
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.problem import build
from shardbench import Planner

TOPOLOGY, HOST = "dgx_h100", 8
COLUMNS = (
    "tables",
    "GPUs left",
    "budget",
    "moved",
    "slowest rank",
    "bound",
    "gap",
    "CPU",
    "memory",
)
SHARE = 0.1


def replan(workload: str, gpus: int, file: Path, share: float | None) -> str:
    """Return a row for the best plan that moves this share of the weights, or any for None."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lost = range(HOST, HOST + max(gpus // 64, HOST))
    problem = build(WorkloadSpec.parse(workload), find_topology(TOPOLOGY, gpus - len(lost)))
    weights = sum(table.rows * table.dim * 4 for table in problem.tables) / 2**30
    budget = None if share is None else share * weights
    planner = Planner(
        topology=problem.topology,
        batch_size=problem.batch_size,
        constraints=problem.constraints,
        storage_reservation=problem.storage_reservation(),
        stats=[],
        debug=False,
        mode="best-plan",
        previous=file,
        lost_ranks=lost,
        move_budget=budget,
    )
    began = time.process_time()
    planner.plan(problem.module, problem.sharders)
    seconds = time.process_time() - began
    rating = planner._perf_model.rate(planner._best_plan)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    limit = "any" if budget is None else f"{budget:,.0f} GiB"
    cells = [f"{len(problem.tables):,}", f"{gpus - len(lost):,}", limit]
    cells += [f"{planner.moved_gib:,.0f} GiB", f"{rating:.2f} ms", f"{planner.bound_ms:.2f} ms"]
    cells += [f"{rating / planner.bound_ms - 1:.2%}", f"{seconds:.1f} s", f"{peak:.2f} GiB"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the rows of all sizes."""
    print(f"| {' | '.join(COLUMNS)} |\n|{' ---: |' * len(COLUMNS)}", flush=True)
    spawned = multiprocessing.get_context("spawn")
    for size in sys.argv[1:]:
        tables, gpus = size.split("x")
        workload = f"synthetic[tables={tables},seed=7]"
        with TemporaryDirectory() as folder:
            file = Path(folder) / "plan.json"
            command = [sys.executable, "-m", "shardbench", "plan", "-w", workload]
            machine = ["-t", TOPOLOGY, "-n", gpus, "-o", str(file)]
            subprocess.run([*command, *machine], check=True, capture_output=True)
            for share in (SHARE, None):
                with ProcessPoolExecutor(1, spawned) as process:
                    row = process.submit(replan, workload, int(gpus), file, share).result()
                print(row, flush=True)


if __name__ == "__main__":
    main()

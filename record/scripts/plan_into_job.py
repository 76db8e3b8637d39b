"""The way of a plan into a job: python record/scripts/plan_into_job.py TABLES GPUS

Plans with `certified`, then writes the plan, reads and checks it with JsonPlanLoader, lets
torchrec's planner take it, and broadcasts it as `collective_plan` does: rank 0 pickles the plan,
and each other rank unpickles it. A row has the CPU time of a step, and the peak of the resident
memory so far. The plan is made in one process and taken in another, as on a cluster.
"""

import json
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from common import build_problem, in_new_process, peak_gib, plan_file, print_table, timed
from torchrec.distributed.planner import EmbeddingShardingPlanner

from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints

TOPOLOGY = "dgx_h100"
R = TypeVar("R")


def load(workload: str, gpus: int, file: Path) -> list[tuple[str, str, str]]:
    """Return a row for each step of loading a plan."""
    problem = build_problem("embedding", f"{workload}/{TOPOLOGY}:{gpus}")
    rows = []

    def step(name: str, work: Callable[[], R]) -> R:
        result, seconds = timed(work)
        rows.append((name, f"{seconds:.2f} s", f"{peak_gib():.2f} GiB"))
        return result

    content = json.loads(file.read_bytes())
    shards = sum(len(table["shards"]) for table in content["tables"])
    step(f"written: {shards:,} shards", partial(json.dumps, content))
    del content
    loader = step(
        "read and checked", lambda: JsonPlanLoader(file, problem.module, topology=problem.topology)
    )
    planner = EmbeddingShardingPlanner(
        topology=problem.topology,
        batch_size=problem.batch_size,
        constraints=step("constraints", lambda: plan_constraints(file)),
        storage_reservation=problem.storage_reservation(),
        plan_loader=loader,
        debug=False,
    )
    plan = step("taken by the planner", lambda: planner.plan(problem.module, problem.sharders))
    sent = step("pickled on rank 0", lambda: pickle.dumps(plan))
    step("unpickled on each other rank", lambda: pickle.loads(sent))
    return rows


if __name__ == "__main__":
    tables, gpus = map(int, sys.argv[1:3])
    workload = f"synthetic[tables={tables},seed=7]"
    with plan_file(workload, TOPOLOGY, gpus) as file:
        print_table(("step", "CPU time", "peak memory"), in_new_process(load, workload, gpus, file))

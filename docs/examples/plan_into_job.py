"""The way of a plan into a job: python docs/examples/plan_into_job.py TABLES GPUS

Plans with `certified`, then writes the plan, reads and checks it with JsonPlanLoader, lets
torchrec's planner take it, and broadcasts it as `collective_plan` does: rank 0 pickles the plan,
and each other rank unpickles it. Prints a row per step in Markdown, with its CPU time and the peak
of the resident memory so far. Both parts run in processes of their own, as they do on a cluster.
"""

import json
import logging
import pickle
import resource
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from torchrec.distributed.planner import EmbeddingShardingPlanner

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.problem import build


def load(workload: str, topology: str, gpus: int, file: Path) -> None:
    """Print a row for each step of loading a plan."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    problem = build(WorkloadSpec.parse(workload), find_topology(topology, gpus))

    def step(name: str, work):
        began = time.process_time()
        result = work()
        seconds = time.process_time() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"| {name} | {seconds:.2f} s | {peak:.2f} GiB |", flush=True)
        return result

    content = json.loads(file.read_bytes())
    shards = sum(len(table["shards"]) for table in content["tables"])
    step(f"written: {shards:,} shards", partial(json.dumps, content))
    del content
    loader = step(
        "read and checked", lambda: JsonPlanLoader(file, problem.module, topology=problem.topology)
    )
    constraints = step("constraints", lambda: plan_constraints(file))
    planner = EmbeddingShardingPlanner(
        topology=problem.topology,
        batch_size=problem.batch_size,
        constraints=constraints,
        storage_reservation=problem.storage_reservation(),
        plan_loader=loader,
        debug=False,
    )
    plan = step("taken by the planner", lambda: planner.plan(problem.module, problem.sharders))
    sent = step("pickled on rank 0", lambda: pickle.dumps(plan))
    step("unpickled on each other rank", lambda: pickle.loads(sent))


def main() -> None:
    """Plan in one process, and load the plan in another."""
    if len(sys.argv) == 5:
        load(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        return
    tables, gpus = sys.argv[1:3]
    workload, topology = f"synthetic[tables={tables},seed=7]", "dgx_h100"
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "plan.json")
        command = [sys.executable, "-m", "shardbench", "plan", "-w", workload]
        machine = ["-t", topology, "-n", gpus, "-o", file]
        subprocess.run([*command, *machine], check=True, stdout=subprocess.DEVNULL)
        print("| step | CPU time | peak memory |\n| --- | ---: | ---: |", flush=True)
        subprocess.run([sys.executable, __file__, workload, topology, gpus, file], check=True)


if __name__ == "__main__":
    main()

"""Print how long a training step takes with three plans, in real processes.

`python record/scripts/trained_step.py MACHINE` plans each problem for two ranks: TorchRec's planner
(`upstream`), the best plan by TorchRec's formula (`certified`), and the best by a calibrated
machine. Two processes with one thread each then train the same tables with
`DistributedModelParallel` over gloo, or nccl with `--device cuda`. The time is the wall time of a
step, whose ranks begin together, until the slower one has ended. Plans take turns, each time in new
processes. The ratio is the plan's time over TorchRec's, with its 99 % interval. The
machine's communication is that of its links, if links.py measured them, else that of NVLink.
"""

import gc
import logging
import os
import statistics
import time
import warnings
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from common import device_and_machine_of, print_table, rows_of_all
from sharded_step import FAMILY, plans_of

from harness.contract import ShardbenchError, WorkloadSpec
from harness.measuring.timing.verdict import estimate_ratio
from harness.topologies.lookup import find_topology
from planners.embedding.measuring.rank import RankJob, inputs_of, rank_jobs, sharded_model, step
from planners.embedding.measuring.workbench import with_kernels
from reports.core.formatting import figure, interval

SIZE = "weights=cpu,mib=300"  # no plan of these problems has an empty shard
WORKLOADS = (
    f"dlrm-dcnv2[{SIZE}]",
    f"criteo-kaggle[{SIZE}]",
    f"merlin-small[tables=40,seed=74,{SIZE}]",
    f"merlin-medium[tables=40,seed=74,{SIZE}]",
    f"dlrm-856[tables=30,seed=77,{SIZE}]",
    f"synthetic[tables=30,seed=74,{SIZE}]",
)
RANKS, TURNS, UNTIMED, TIMED = 2, 10, 3, 10
COLUMNS = ("problem", "plan", "estimated ms", "measured ms", "over TorchRec's")


def train(rank: int, jobs: list[RankJob], folder: str) -> None:
    """Train one rank; rank 0 writes the median seconds of a step into the folder."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    job = replace(jobs[rank], seed=rank)
    if job.device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if job.device == "cuda" else "gloo"
    store = f"file://{folder}/store"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=RANKS)
    model, inputs = sharded_model(job), inputs_of(job)
    seconds = []
    gc.disable()
    for _ in range(UNTIMED + TIMED):
        dist.barrier()
        begun = time.perf_counter()
        step(model, inputs)
        if job.device == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        seconds.append(time.perf_counter() - begun)
    if rank == 0:
        Path(folder, "seconds").write_text(str(statistics.median(seconds[UNTIMED:])))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # at Python's own end, threads of gloo's may abort the process


def seconds_of(jobs: list[RankJob]) -> float:
    """Return the seconds of a step of all ranks, in new processes."""
    with TemporaryDirectory() as folder:
        processes.spawn(train, (jobs, folder), RANKS)
        return float(Path(folder, "seconds").read_text())


def rows(workload: str, machine: str, device: str, turns: int = TURNS) -> list[list[str]]:
    """Return a row for each different plan of a problem."""
    topology = find_topology("dgx_h100", RANKS).judged_by(machine)
    built = FAMILY.work.build(WorkloadSpec.parse(workload), topology)
    problem = with_kernels(built, ["fused"])
    plans = plans_of(problem)
    jobs = [
        list(rank_jobs(problem, plan, "rowwise_adagrad", device).values())
        for plan in plans.values()
    ]
    if any(len(of_plan) < RANKS for of_plan in jobs):
        raise ShardbenchError("A plan has an empty shard, on which fbgemm fails on a CPU.")
    seconds: list[list[float]] = [[] for _ in plans]
    order = list(zip(jobs, seconds, strict=True))
    for _ in range(turns):
        for of_plan, times in order:
            times.append(seconds_of(of_plan))
        order.reverse()
    table = []
    for number, (name, plan) in enumerate(plans.items()):
        ratio = estimate_ratio(seconds[number], seconds[0])
        over = f"{ratio.value:.2f} ({interval(ratio.low, ratio.high)})" if number else "-"
        judged = problem.judged(plan.options)
        by_rank = [0.0] * RANKS
        for option in judged:
            for shard in option.shards:
                by_rank[shard.rank] += shard.perf.total
        measured = figure(1000 * statistics.median(seconds[number]))
        table.append([f"`{workload}`", name, figure(max(by_rank)), measured, over])
    return table


def main() -> None:
    """Train the problems one after the other, and print the table."""
    device, machine = device_and_machine_of(__doc__)
    table = rows_of_all("training", WORKLOADS, lambda workload: rows(workload, machine, device))
    print_table(COLUMNS, table, texts=2)


if __name__ == "__main__":
    main()

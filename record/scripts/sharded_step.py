"""Print how long a sharded step takes with TorchRec's plan and with ours.

`python record/scripts/sharded_step.py --device cuda` plans each problem for 4 GPUs. One device
plays each rank in turn: it builds `DistributedModelParallel` with the rank's shards, and times
forward, sum, backward and optimizer. A collective only allocates its result, so the times are those
of computation and copies. "estimated" leaves out collectives too. The ratio is that of the plans'
slowest ranks over TorchRec's, with its 99 % interval over processes that take turns. Plans have
kernel `fused` only. With `validations/gpu-cuda.toml`, which estimates.py writes, the best plan by
the calibrated machine is added.
"""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from common import device_of, print_table, rows_of_all

from harness.contract import ShardbenchError, WorkloadSpec
from harness.contract.registry import load_registry
from harness.execution.child import run
from harness.execution.worker import Failed, Stage
from harness.measuring.jobs import start_server_for
from harness.measuring.timing.verdict import estimate_ratio
from harness.topologies.lookup import find_topology
from planners.embedding.decision import Plan, fingerprint, torchrec_quiet
from planners.embedding.measuring.rank import RankJob, rank_jobs, seconds_of_step
from planners.embedding.measuring.workbench import with_kernels
from planners.embedding.problem import EmbeddingProblem
from reports.core.formatting import figure, interval

RANKS = 4
WORKLOADS = (
    "dlrm-dcnv2[weights=cpu,mib={mib}]",
    "merlin-medium[tables=60,seed=5,weights=cpu,mib={mib}]",
    "synthetic[tables=60,seed=13,weights=cpu,mib={mib}]",
)
MIB = {"cpu": 300, "cuda": 8192}
AGAIN = 5
SECONDS_OF_A_RANK = 300.0
SECONDS = 200.0  # no further problem is begun later than this
COLUMNS = ("problem", "plan", "estimated ms", "measured ms", "rank", "over TorchRec's")
FAMILY = load_registry().find("embedding")


def plans_of(problem: EmbeddingProblem) -> dict[str, Plan]:
    """Return the plans of a problem to compare, TorchRec's first; equal plans have one entry."""
    plain = replace(problem, machine=None, known={})
    ways = [("upstream", "upstream", plain), ("certified", "certified", plain)]
    if problem.machine is not None:
        ways.append(("certified by machine", "certified", problem))
    plans: dict[str, tuple[str, Plan]] = {}
    with torchrec_quiet():
        for name, variant, by in ways:
            plan = FAMILY.variants[variant].prepared(by).run()
            same, _ = plans.get(fingerprint(plan), ("", plan))
            plans[fingerprint(plan)] = f"{same}, {name}" if same else name, plan
    return dict(plans.values())


def seconds_of(job: RankJob) -> float:
    """Return the seconds of a step of a rank, played in a new process."""
    seconds = run(seconds_of_step, job, first=Stage("playing a rank", SECONDS_OF_A_RANK))
    if isinstance(seconds, Failed):
        raise ShardbenchError(f"Playing a rank failed: {seconds.reason}")
    return float(seconds)


def time_slowest(plans: Sequence[dict[int, RankJob]], again: int) -> list[tuple[int, list[float]]]:
    """Time each rank of each plan once, and `again` times, in turns, the slowest ones.

    Return the slowest rank of each plan with its seconds.
    """
    slowest: list[tuple[int, list[float]]] = []
    for jobs in plans:
        once = {rank: seconds_of(job) for rank, job in jobs.items()}
        slowest.append((max(once, key=once.__getitem__), []))
    turns = list(zip(plans, slowest, strict=True))
    for _ in range(again):
        for jobs, (rank, seconds) in turns:
            seconds.append(seconds_of(jobs[rank]))
        turns.reverse()
    return slowest


def rows(workload: str, machine: str, device: str, again: int = AGAIN) -> Iterator[list[str]]:
    """Yield a row for each different plan of a problem, also by a calibrated machine if not ""."""
    machines = find_topology("dgx_h100", RANKS).judged_by(machine)
    built = FAMILY.work.build(WorkloadSpec.parse(workload), machines)
    problem = with_kernels(built, ["fused"])
    plans = plans_of(problem)
    jobs = [rank_jobs(problem, plan, "rowwise_adagrad", device) for plan in plans.values()]
    measured = time_slowest(jobs, again)
    for (name, plan), (rank, seconds) in zip(plans.items(), measured, strict=True):
        estimated = Counter[int]()  # computation, by rank
        for option in plan.options:
            for shard in option.shards:
                estimated[shard.rank] += shard.perf.fwd_compute + shard.perf.bwd_compute
        over = "-"
        if seconds is not measured[0][1]:
            ratio = estimate_ratio(seconds, measured[0][1])
            over = f"{ratio.value:.2f} ({interval(ratio.low, ratio.high)})"
        times = figure(max(estimated.values())), figure(1000 * statistics.median(seconds))
        yield [f"`{workload}`", name, *times, str(rank), over]


def main() -> None:
    """Measure the problems one after the other, and print the table."""
    device, begun = device_of(__doc__), time.monotonic()
    start_server_for([FAMILY])
    machine = Path(f"validations/gpu-{device}.toml")
    judge = str(machine) if machine.exists() else ""

    def in_time() -> Iterator[str]:
        for workload in (template.format(mib=MIB[device]) for template in WORKLOADS):
            if time.monotonic() - begun <= SECONDS:
                yield workload
            else:
                print(f"{workload} is left out for lack of time.", file=sys.stderr)

    table = rows_of_all(
        "playing the ranks of", in_time(), lambda workload: rows(workload, judge, device)
    )
    print_table(COLUMNS, table, texts=2)


if __name__ == "__main__":
    main()

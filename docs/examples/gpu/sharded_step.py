"""Print, in Markdown, how long a sharded step takes with TorchRec's plan and with ours.

`python docs/examples/gpu/sharded_step.py --device cuda` plans each problem for 4 GPUs. One device
plays each rank in turn: it builds `DistributedModelParallel` with the rank's shards, and times
forward, sum, backward and optimizer. A collective only allocates its result, so the times are those
of computation and copies. "estimated" leaves out collectives too. The ratio is that of the plans'
slowest ranks over TorchRec's, with its 99 % interval over processes that take turns. Plans have
kernel `fused` only. With `validations/gpu-cuda.csv`, which estimates.py writes, plans for the
calibrated machine are added.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.contract import ShardbenchError, WorkloadSpec
from harness.contract.registry import load_registry
from harness.estimates.steps import SlowestRank, time_slowest
from harness.measuring.jobs import start_server_for
from harness.topologies.lookup import find_topology
from planners.embedding.decision import Plan, fingerprint, torchrec_quiet
from planners.embedding.estimates.device import Device
from planners.embedding.estimates.memory_candidates import rank_jobs
from planners.embedding.estimates.workbench import with_kernels
from planners.embedding.memory.rank_model import steps_of
from planners.embedding.problem import EmbeddingProblem
from reports.core.formatting import figure, interval
from reports.core.table import Table, as_markdown, code, numbers, table_of, text

RANKS = 4
WORKLOADS = ("dlrm-dcnv2", "merlin-medium[tables=60,seed=5]", "synthetic[tables=60,seed=13]")
MIB = {"cpu": 300, "cuda": 8192}
AGAIN = 5
SECONDS = 200.0  # no further problem is begun later than this

Row = tuple[str, str, float, SlowestRank, SlowestRank]


def sized(workload: str, mib: int) -> WorkloadSpec:
    """Return the workload with its tables scaled to `mib` MiB."""
    spec = WorkloadSpec.parse(workload)
    return WorkloadSpec(spec.name, {**spec.parameters, "weights": "cpu", "mib": str(mib)})


def plans_of(problem: EmbeddingProblem) -> dict[str, Plan]:
    """Return the plans of a problem to compare, TorchRec's first; equal plans have one entry."""
    names = ["upstream", "certified", *(["calibrated"] if problem.coefficients else [])]
    plans: dict[str, tuple[str, Plan]] = {}
    with torchrec_quiet():
        for name in names:
            plan: Any = FAMILY.variants[name].prepared(problem).run()
            before = plans.get(fingerprint(plan))
            plans[fingerprint(plan)] = f"{before[0]}, {name}" if before else name, plan
    return dict(plans.values())


def computation_ms(plan: Plan) -> float:
    """Return TorchRec's estimate of the slowest rank's computation."""
    ranks = Counter[int]()
    for option in plan.options:
        for shard in option.shards:
            ranks[shard.rank] += shard.perf.fwd_compute + shard.perf.bwd_compute
    return max(ranks.values())


def rows(spec: WorkloadSpec, topology: str, device: str, again: int = AGAIN) -> Iterator[Row]:
    """Yield a row for each different plan of a problem."""
    problem = with_kernels(FAMILY.work.build(spec, find_topology(topology, RANKS)), ["fused"])
    plans = plans_of(problem)
    jobs = [rank_jobs(problem, plan, "rowwise_adagrad", device) for plan in plans.values()]
    measured = time_slowest(steps_of, jobs, again, device == "cuda")
    for (name, plan), slowest in zip(plans.items(), measured, strict=True):
        yield str(spec), name, computation_ms(plan), slowest, measured[0]


def steps_table(found: list[Row]) -> Table:
    """Return a row for each plan, with its time over that of TorchRec's plan."""
    return table_of(
        found,
        code("problem", 0),
        text("plan", 1),
        numbers("estimated ms", 2, figure),
        numbers("measured ms", lambda row: row[3].milliseconds, figure),
        numbers("rank", lambda row: row[3].rank, str),
        text("over TorchRec's", _over),
    )


def _over(row: Row) -> str:
    ratio = row[3].over(row[4])
    return "-" if row[3] is row[4] else f"{ratio.value:.2f} ({interval(ratio.low, ratio.high)})"


def main() -> None:
    """Measure the problems one after the other, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    begun = time.monotonic()
    Device(device)  # refuses a device that is not there
    start_server_for([FAMILY])
    calibrated = Path(f"validations/gpu-{device}.csv")
    topology = str(calibrated) if calibrated.exists() else "dgx_h100"
    found: list[Row] = []
    for workload in WORKLOADS:
        if time.monotonic() - begun > SECONDS:
            print(f"{workload} is left out for lack of time.", file=sys.stderr)
            continue
        print(f"playing the ranks of {workload}", file=sys.stderr)
        try:
            found += rows(sized(workload, MIB[device]), topology, device)
        except ShardbenchError as error:  # go on with the other problems
            print(f"{workload}: {error}", file=sys.stderr)
    if not found:
        sys.exit(2)
    print(as_markdown(steps_table(found)))


FAMILY = load_registry().find("embedding")

if __name__ == "__main__":
    try:
        main()
    except ShardbenchError as error:
        print(error, file=sys.stderr)
        sys.exit(2)

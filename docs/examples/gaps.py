"""How far plans are from their bound: python docs/examples/gaps.py FIRST LAST

Plans mixture[seed=FIRST] to mixture[seed=LAST - 1], each on 4 to 32 ranks that its seed draws.
"""

import logging
import math
import sys
from statistics import median, quantiles

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.best_plan.search import best_plan
from planners.embedding.problem import build
from planners.embedding.quality import arrays
from planners.embedding.search.outcome import Found
from planners.embedding.workloads.mixture import shape


def gap_of(workload: str, topology) -> float | None:
    """Plan a problem, print a line, and return the gap; infinite where undecided, None if none."""
    problem = build(WorkloadSpec.parse(workload), topology)
    space, devices = arrays(problem)
    outcome = best_plan(space, devices)
    bound = outcome.bound
    if isinstance(outcome, Found):
        gap = outcome.rating / bound - 1 if bound else 0.0
        said = f"{outcome.rating:9.4f} ms, bound {bound:9.4f}, gap {gap:7.2%}"
    else:
        gap = math.inf if math.isfinite(bound) else None
        said = "no plan exists" if gap is None else "undecided"
    ranks = f"{topology.gpus} ranks of {topology.gpus_per_host}"
    print(f"{workload:20} {space.tables:3} tables, {ranks:13} {said}; {problem.memory}", flush=True)
    return gap


def main() -> None:
    """Plan the problems and print how their gaps are distributed."""
    logging.disable(logging.WARNING)
    machines = find_topology("dgx_a100_80gb", 32)
    first, last = map(int, sys.argv[1:3])
    gaps = [gap_of(f"mixture[seed={seed}]", shape(seed, machines)) for seed in range(first, last)]
    planned = sorted(gap for gap in gaps if gap is not None and math.isfinite(gap))
    tenth = quantiles(planned, n=10)[-1]
    print(
        f"{len(gaps)} problems, {len(planned)} plans, {gaps.count(None)} without a plan, ", end=""
    )
    print(f"{gaps.count(math.inf)} undecided")
    print(f"median gap {median(planned):.2%}, nine in ten {tenth:.2%}, worst {planned[-1]:.2%}")


if __name__ == "__main__":
    main()

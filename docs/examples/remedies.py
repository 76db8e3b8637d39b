"""How exact remedies are: python docs/examples/remedies.py FIRST LAST

Makes a random problem without a plan from each seed from FIRST to LAST - 1: a mixture of tables on
4 to 32 ranks, with less and less HBM until it is proven that no plan fits. Prints the remedies with
the gaps between plan and proof, the largest gap, and the seconds.
"""

import logging
import math
import random
import sys
import time

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.best_plan.search import best_plan
from planners.embedding.problem import build
from planners.embedding.quality import arrays
from planners.embedding.remedies.remedies import remedies
from planners.embedding.workloads.mixture import shape

SECONDS = 20.0


def problem_without_plan(seed: int):
    """Return the workload's name and the problem."""
    draw = random.Random(f"remedies/{seed}")
    hbm, ddr = draw.uniform(0.2, 0.9), draw.choice([0.02, 0.1, 0.3])
    machines = shape(seed, find_topology("dgx_a100_80gb", 32))
    for _ in range(6):
        workload = f"mixture[seed={seed},hbm={hbm:.4f},ddr={ddr:.4f}]"
        problem = build(WorkloadSpec.parse(workload), machines)
        if math.isinf(best_plan(*arrays(problem)).bound):
            return f"{workload} on {machines.gpus}", problem
        hbm, ddr = 0.7 * hbm, 0.5 * ddr
    return problem_without_plan(seed + 1000)  # spare memory holds these tables


def main() -> None:
    """Print a line for each problem."""
    logging.disable(logging.WARNING)
    gaps, times = [], []
    for seed in range(*map(int, sys.argv[1:3])):
        name, problem = problem_without_plan(seed)
        began = time.perf_counter()
        found = remedies(problem, SECONDS)
        times.append(time.perf_counter() - began)
        gaps.append(max((remedy.gap for remedy in found.remedies), default=math.inf))
        each = ", ".join(f"{remedy.name} {remedy.gap:.2%}" for remedy in found.remedies)
        print(f"{name}: largest gap {gaps[-1]:.2%}, {times[-1]:.1f} s ({each})", flush=True)
        for sentence in (*found.causes, *found.findings) if "-v" in sys.argv else ():
            print(f"    {sentence}")
    print(f"{len(gaps)} problems: largest gap {max(gaps):.2%}, longest {max(times):.1f} s")


if __name__ == "__main__":
    main()

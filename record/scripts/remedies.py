"""How exact remedies are: python record/scripts/remedies.py FIRST LAST

Makes a random problem without a plan from each seed from FIRST to LAST - 1: a mixture of tables on
4 to 32 ranks, with less and less memory until it is proven that no plan fits. Prints the gaps
between plan and proof for each kind of remedy, and on standard error each problem.
"""

import math
import random
import sys
import time
from collections import defaultdict
from dataclasses import replace
from statistics import median, median_high

from common import be_quiet, print_table, timed

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.best_plan.search import best_plan
from planners.embedding.problem import EmbeddingProblem, build
from planners.embedding.quality import arrays
from planners.embedding.remedies.remedies import remedies

SECONDS = 18.0
COLUMNS = ("remedy", "problems", "gap of at most 2 %", "median gap", "largest gap")


def problem_without_plan(seed: int) -> tuple[str, EmbeddingProblem]:
    """Return the workload's name and the problem."""
    draw = random.Random(f"remedies/{seed}")
    hbm, ddr = draw.uniform(0.2, 0.9), draw.choice([0.02, 0.1, 0.3])
    size = random.Random(f"shape/{seed}")
    ranks, of_host = size.choice([4, 8, 16, 32]), size.choice([4, 8])
    machines = find_topology("dgx_a100_80gb", 32)
    machines = replace(machines, gpus=ranks, gpus_per_host=min(of_host, ranks))
    for _ in range(6):
        workload = f"mixture[seed={seed},hbm={hbm:.4f},ddr={ddr:.4f}]"
        problem = build(WorkloadSpec.parse(workload), machines)
        if math.isinf(best_plan(*arrays(problem)).bound):
            return f"{workload} on {machines.gpus}", problem
        hbm, ddr = 0.7 * hbm, 0.5 * ddr
    return problem_without_plan(seed + 1000)  # spare memory holds these tables


def main() -> None:
    """Search for the remedies of each problem, and print the table."""
    be_quiet()
    gaps, times = defaultdict[str, list[float]](list), []
    for seed in range(*map(int, sys.argv[1:3])):
        name, problem = problem_without_plan(seed)
        outcome, seconds = timed(lambda problem=problem: remedies(problem, SECONDS), time.monotonic)
        times.append(seconds)
        for remedy in outcome.remedies:
            gaps[remedy.name].append(remedy.gap)
        first = outcome.remedies[0].gap if outcome.remedies else math.inf
        gaps["the first change"].append(first)
        changes = ", ".join(f"{remedy.name} {remedy.gap:.2%}" for remedy in outcome.remedies)
        print(f"{name}: {seconds:.1f} s, {changes}", file=sys.stderr, flush=True)
    rows = []
    for name, several in gaps.items():
        small = sum(gap <= 0.02 for gap in several)
        rows.append(
            (name, len(several), small, f"{median_high(several):.2%}", f"{max(several):.2%}")
        )
    print_table(COLUMNS, rows)
    print(f"\nThe longest search took {max(times):.1f} s, the median {median(times):.1f} s.")


if __name__ == "__main__":
    main()

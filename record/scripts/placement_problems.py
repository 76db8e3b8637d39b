"""Problems of placement: python record/scripts/placement_problems.py FOLDER|WORKLOAD...

A folder has files of the IOPDDL contest (`*.json.gz`); a workload is e.g. blocks[blocks=60]. Every
problem is planned by `certified` in a process of its own, within the contest's seconds. A row has
the lowest cost of the contest's teams and XLA, our cost, the proven bound, the gap between the two,
the wall seconds with reading, the CPU seconds, and the peak of the process's memory. Costs of files
are summed up again, from the text of the file.
"""

import gzip
import sys
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

from common import in_new_process, peak_gib, print_table
from msgspec import json

from harness.contract import InfeasibleDecision, WorkloadSpec
from planners.placement import FAMILY
from planners.placement.files import best_known
from planners.placement.search.warm_up import warm_up

COLUMNS = (
    *("problem", "nodes", "best team", "ours", "over the best", "bound", "gap", "seconds", "CPU"),
    "memory",
)


def row(named: str) -> list[str]:
    """Plan a problem, and return its row."""
    warm_up()
    began, cpu = time.monotonic(), time.process_time()
    spec = WorkloadSpec.parse(named)
    problem = FAMILY.work.build(spec, FAMILY.brings(spec))
    best = best_known(problem.name)
    if best:  # reading belongs to the contest's time
        problem = problem.limited(best.seconds - (time.monotonic() - began))
    prepared = FAMILY.find("certified").prepared(problem)
    seconds, spent = "—", "—"
    try:
        plan = prepared.run()
        seconds = f"{time.monotonic() - began:.0f} s"
        spent = f"{time.process_time() - cpu:.0f} s"
        FAMILY.work.validate(problem, plan)
        quality = FAMILY.work.quality(problem, plan)
        cost, bound = quality["cost"], quality["bound"]
        if Path(named).exists() and evaluated(named, plan.choice.tolist()) != (cost, True):
            raise SystemExit(f"{named}: the plan costs something else, or does not fit.")
        figures = [f"{cost:,.0f}", f"{cost / best.cost - 1:+.3%}" if best else "—"]
        figures += [f"{bound:,.0f}", f"{cost / bound - 1:.2%}"]
    except InfeasibleDecision:
        figures = ["none found", "—", "—", "—"]
    return [
        f"`{problem.name}`",
        f"{problem.nodes:,}",
        f"{best.cost:,}" if best else "—",
        *figures,
        seconds,
        spent,
        f"{peak_gib():.2f} GiB",
    ]


def evaluated(path: str, states: list[int]) -> tuple[int, bool]:
    """Return the cost of a plan for a file, and whether it fits, as the contest evaluates it."""
    text = Path(path).read_bytes()
    problem: dict[str, Any] = json.decode(gzip.decompress(text) if path.endswith("z") else text)[
        "problem"
    ]
    nodes, edges = problem["nodes"], problem["edges"]
    cost = sum(costs[state] for costs, state in zip(nodes["costs"], states, strict=True))
    for (u, v), costs in zip(edges["nodes"], edges["costs"], strict=True):
        cost += costs[states[u] * len(nodes["costs"][v]) + states[v]]
    used = [0] * (2 + max(end for _, end in nodes["intervals"]))
    for (begin, end), usages, state in zip(
        nodes["intervals"], nodes["usages"], states, strict=True
    ):
        if begin < end:
            used[begin] += usages[state]
            used[end] -= usages[state]
    return cost, max(accumulate(used)) <= problem["usage_limit"]


def main() -> None:
    """Print the table of all problems."""
    problems: list[str] = []
    for named in sys.argv[1:]:
        files = sorted(map(str, Path(named).glob("*.json.gz")))
        if not files and "[" not in named:
            print(f"{named} has no file of the IOPDDL contest.", file=sys.stderr)
            sys.exit(2)
        problems += files or [named]
    print_table(COLUMNS, (in_new_process(row, named) for named in problems))


if __name__ == "__main__":
    main()

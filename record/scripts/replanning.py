"""Replanning after a loss of hosts: python record/scripts/replanning.py TABLESxGPUS...

Plans on all GPUs, loses one host in 64, and plans for the GPUs left: once with a budget of a tenth
of the weights, and once with any number of bytes moved. Each plan is made in a process of its own.
CPU time and memory are those of the planner's call, with its options, moves and bound; memory
includes the model and the libraries.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from common import build_problem, in_new_process, peak_gib, plan_file, print_table, timed

from shardbench import Planner

TOPOLOGY, HOST = "dgx_h100", 8
SHARE = 0.1
COLUMNS = (
    "tables", "GPUs left", "budget", "moved", "slowest rank", "bound", "gap", "CPU", "memory",
)  # fmt: skip


def replan(workload: str, gpus: int, file: Path, share: float | None) -> list[str]:
    """Return a row for the best plan that moves this share of the weights, or any for None."""
    lost = range(HOST, HOST + max(gpus // 64, HOST))
    problem = build_problem("embedding", f"{workload}/{TOPOLOGY}:{gpus - len(lost)}")
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
    _, seconds = timed(lambda: planner.plan(problem.module, problem.sharders))
    rating, bound = planner._perf_model.rate(planner._best_plan), planner.bound_ms
    return [
        f"{len(problem.tables):,}",
        f"{gpus - len(lost):,}",
        "any" if budget is None else f"{budget:,.0f} GiB",
        f"{planner.moved_gib:,.0f} GiB",
        f"{rating:.2f} ms",
        f"{bound:.2f} ms",
        f"{rating / bound - 1:.2%}",
        f"{seconds:.1f} s",
        f"{peak_gib():.2f} GiB",
    ]


def rows(sizes: list[str]) -> Iterator[list[str]]:
    """Yield two rows for each size, such as `1000x128`."""
    for size in sizes:
        tables, gpus = map(int, size.split("x"))
        workload = f"synthetic[tables={tables},seed=7]"
        with plan_file(workload, TOPOLOGY, gpus) as file:
            for share in (SHARE, None):
                yield in_new_process(replan, workload, gpus, file, share)


if __name__ == "__main__":
    print_table(COLUMNS, rows(sys.argv[1:]), texts=0)

"""Large problems: python docs/examples/large_problems.py VARIANT@PROBLEM...

A problem is written as synthetic[tables=1000,seed=7]/dgx_h100:128, and planned in a process of its
own. Prints a row per plan in Markdown: the CPU seconds of the planner's call and of its phases, the
peak of the process's memory up to the plan, and the plan's gap to the proven bound. Building the
problem takes no part in the seconds.
"""

import logging
import multiprocessing
import resource
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

from harness.contract import InfeasibleDecision, Recorder, WorkloadSpec
from harness.model.ids import CellId
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.decision import validate
from planners.embedding.observer import observe
from planners.embedding.problem import build
from planners.embedding.quality import quality

PHASES = ("enumerate", "arrays", "search")
COLUMNS = ("variant", "problem", "CPU", *PHASES, "memory", "slowest rank", "gap")


def row(cell: CellId) -> str:
    """Plan a cell's problem, and return its row."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    topology = find_topology(cell.problem.topology, cell.problem.gpus)
    problem = build(WorkloadSpec.parse(str(cell.problem.workload)), topology)
    prepared, recorder = FAMILY.find(cell.variant).prepared(problem), Recorder(time.process_time)
    began = time.process_time()
    try:
        with observe(recorder), recorder.call():
            plan = prepared.run()
    except InfeasibleDecision as error:
        plan, missing = None, "none fits" if "proven" in str(error) else "none found"
    whole = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    seconds = [f"{spent:.1f} s" for spent in (whole, *map(recorder.phases.__getitem__, PHASES))]
    cells = [f"`{cell.variant}`", f"`{cell.problem}`", *seconds, f"{peak:.2f} GiB"]
    if plan is None:
        cells += [missing, "—"]
    else:
        validate(problem, plan)
        found = quality(problem, plan)
        cells += [f"{found['max_rank_ms']:.2f} ms", f"{found['gap']:.2%}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the rows of all problems."""
    numbers = len(COLUMNS) - 2
    print(f"| {' | '.join(COLUMNS)} |\n| --- | --- |{' ---: |' * numbers}", flush=True)
    spawned = multiprocessing.get_context("spawn")
    for name in sys.argv[1:]:
        with ProcessPoolExecutor(1, spawned) as process:
            print(process.submit(row, CellId.parse(f"embedding/{name}")).result(), flush=True)


if __name__ == "__main__":
    main()

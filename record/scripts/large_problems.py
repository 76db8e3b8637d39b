"""Large problems: python record/scripts/large_problems.py VARIANT@PROBLEM...

A problem is written as synthetic[tables=1000,seed=7]/dgx_h100:128, and planned in a process of its
own. A row has the CPU seconds of the planner's call and of its phases, without building the
problem, the peak of the process's memory up to the plan, and the plan's gap to the proven bound.
"""

import sys
import time

from common import build_problem, in_new_process, peak_gib, print_table, timed

from harness.contract import InfeasibleDecision, Recorder
from planners.embedding import FAMILY

PHASES = ("enumerate", "arrays", "search")
COLUMNS = ("variant", "problem", "CPU", *PHASES, "memory", "slowest rank", "gap")


def row(variant: str, named: str) -> list[str]:
    """Plan a problem, and return its row."""
    problem = build_problem("embedding", named)
    prepared, recorder = FAMILY.find(variant).prepared(problem), Recorder(time.process_time)

    def planned() -> object:
        with FAMILY.work.observe(recorder), recorder.call():
            try:
                return prepared.run()
            except InfeasibleDecision as error:
                return "none fits" if "proven" in str(error) else "none found"

    plan, seconds = timed(planned)
    spent = [f"{took:.1f} s" for took in (seconds, *(recorder.phases[name] for name in PHASES))]
    cells = [f"`{variant}`", f"`{named}`", *spent, f"{peak_gib():.2f} GiB"]
    if isinstance(plan, str):
        return [*cells, plan, "—"]
    FAMILY.work.validate(problem, plan)
    quality = FAMILY.work.quality(problem, plan)
    return [*cells, f"{quality['max_rank_ms']:.2f} ms", f"{quality['gap']:.2%}"]


if __name__ == "__main__":
    cells = (named.split("@", 1) for named in sys.argv[1:])
    print_table(COLUMNS, (in_new_process(row, *cell) for cell in cells), texts=2)

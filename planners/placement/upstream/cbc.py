"""Plan a problem by AutoParallel's integer programme, in a child process with PuLP and its CBC.

`harness.contract.ask_upstream` sends the requests.
"""

from collections import defaultdict
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from pulp import PULP_CBC_CMD, LpMinimize, LpProblem, LpStatusOptimal, LpVariable, lpSum, value

from planners.instruments import timed

_BARRED = 2**50


def _plan(request: dict[str, Any]) -> dict[str, Any]:
    """Return the state of each node, or none if no plan was proven to be the best in time."""
    before = _cpu_seconds()
    states, measured = timed(lambda: _solved(request))
    return {"states": states, **measured, "cpu_s": _cpu_seconds() - before}


def _solved(request: dict[str, Any]) -> list[int] | None:
    """Solve with a variable for each argument, state of the op, and state of its producer."""
    widths = [len(costs) for costs in request["costs"]]
    arguments: dict[int, list[int]] = defaultdict(list)
    for edge, (_, consumer) in enumerate(request["edges"]):
        arguments[consumer].append(edge)
    programme = LpProblem("placement", LpMinimize)
    objective, takes = [], []  # takes: for each node and state, the sum of one argument's variables
    produced = []  # the producer and state that a sum of variables stands for
    for node, costs in enumerate(request["costs"]):
        sums = []
        for number, edge in enumerate(arguments[node] or [-1]):
            producer = request["edges"][edge][0] if edge >= 0 else -1
            inputs = range(widths[producer]) if edge >= 0 else range(1)
            names = [[f"x_{node}_{number}_{s}_{t}" for t in inputs] for s in range(len(costs))]
            x = [[LpVariable(name, cat="Binary") for name in row] for row in names]
            for s, row in enumerate(x):
                for t, variable in enumerate(row):
                    pair = request["pairs"][edge][t * len(costs) + s] if edge >= 0 else 0
                    cost = pair + (costs[s] if number == 0 else 0)
                    if cost >= _BARRED:
                        programme += variable == 0
                    else:
                        objective.append(cost * variable)
            programme += lpSum(variable for row in x for variable in row) == 1
            sums.append([lpSum(row) for row in x])
            if edge >= 0:
                produced += [(producer, t, lpSum(row[t] for row in x)) for t in inputs]
        for other in sums[1:]:
            for one, same in zip(sums[0], other, strict=True):
                programme += one == same
        takes.append(sums[0])
    for producer, state, consumed in produced:
        programme += takes[producer][state] == consumed
    for capacity, triples in request["moments"]:
        programme += lpSum(use * takes[node][state] for node, state, use in triples) <= capacity
    programme += lpSum(objective)
    programme.solve(PULP_CBC_CMD(msg=False, timeLimit=request["seconds"]))
    if programme.sol_status != LpStatusOptimal:
        return None
    return [max(range(len(of)), key=lambda s: value(of[s])) for of in takes]


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the solver's, which it started."""
    spent = [getrusage(whose) for whose in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


HANDLERS = {"plan": _plan}

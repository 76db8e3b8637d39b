"""Plan a problem with toulbar2, in a child process that has it on the import path.

`harness.contract.ask_upstream` sends the requests.
"""

from math import ceil
from typing import Any

from pytoulbar2 import CFN

from planners.instruments import timed


def _plan(request: dict[str, Any]) -> dict[str, Any]:
    """Return the state of each node, or none if no plan was found in time."""
    network = CFN(2**62, vac=1)
    for node, costs in enumerate(request["costs"]):
        network.AddVariable(f"n{node}", list(range(len(costs))))
        network.AddFunction([node], costs)
    for scope, costs in zip(request["edges"], request["pairs"], strict=True):
        network.AddFunction(scope, costs)
    for capacity, triples in request["moments"]:
        network.AddGeneralizedLinearConstraint(triples, "<=", capacity)
    solution, measured = timed(lambda: network.Solve(timeLimit=ceil(request["seconds"])))
    return {"states": solution[0] if solution else None, **measured}


HANDLERS = {"plan": _plan}

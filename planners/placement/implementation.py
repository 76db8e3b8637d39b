"""Build the problems of the placement family; check, hash, rate and write plans."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller
from typing import Any

from harness.contract import (
    InfeasibleDecision,
    Planning,
    RankTable,
    Recorder,
    Topology,
    WorkloadSpec,
    is_captured_file,
    read_parameters,
)
from planners.instruments import replaced
from planners.placement.files import best_known, read_problem
from planners.placement.generated import generated
from planners.placement.problem import (
    FORBIDDEN,
    PlacementProblem,
    Plan,
    chosen_pairs,
    cost_of,
    peak_of,
)
from planners.placement.workloads import BlocksParameters, FileParameters

_GIB = 2**30

facts = methodcaller("facts")
"""Describe a problem, its size first."""


def build(spec: WorkloadSpec, topology: Topology) -> PlacementProblem:  # noqa: ARG001
    """Return the problem of a workload; raises UsageError for a file without one."""
    if is_captured_file(spec.name):
        seconds = read_parameters(spec, FileParameters).seconds
        return read_problem(spec.name).limited(seconds)
    asked = read_parameters(spec, BlocksParameters)
    return generated(str(spec), asked).limited(asked.seconds)


def fingerprint(decision: Plan) -> str:
    """Return a hash of the state of every node."""
    return hashlib.sha256(decision.choice.astype("<i8").tobytes()).hexdigest()[:16]


def validate(problem: PlacementProblem, decision: Plan) -> None:
    """Raise InfeasibleDecision for forbidden states or pairs, and for too many bytes in use."""
    choice = decision.choice
    if choice.shape != (problem.nodes,) or (choice < 0).any() or (choice >= problem.widths).any():
        raise InfeasibleDecision("A plan must have one of its states for each node.")
    states = problem.cost[problem.first[:-1] + choice]
    for what, costs in (("nodes", states), ("edges", chosen_pairs(problem, choice))):
        if count := int((costs >= FORBIDDEN).sum()):
            raise InfeasibleDecision(f"The choice is forbidden for {count} {what}.")
    if (peak := peak_of(problem, choice)) > problem.limit:
        raise InfeasibleDecision(f"The plan uses {peak:,} bytes; the limit is {problem.limit:,}.")


def figures(problem: PlacementProblem, known: Mapping[str, float]) -> dict[str, float]:
    """Return a proven bound on the cost, and store it for `quality`."""
    problem.known.update(known)
    if "bound" not in problem.known:
        from planners.placement.search.certified import quick_bound

        problem.known["bound"] = float(quick_bound(problem))
    return problem.known


def quality(problem: PlacementProblem, decision: Plan) -> Mapping[str, float]:
    """Return the exact cost, the best known one, the proven bound, and the peak of memory."""
    cost = cost_of(problem, decision.choice)
    bound = decision.bound or figures(problem, {})["bound"]
    rated = {
        "cost": float(cost),
        "bound": max(float(bound), problem.known.get("bound", 0.0)),
        "peak": peak_of(problem, decision.choice) / problem.limit,
    }
    if best := best_known(problem.name):
        rated["over_best_known"] = cost / best.cost - 1
    return rated


@contextmanager
def observe(recorder: Recorder) -> Iterator[None]:
    """Record the phases and counters of every search that runs in the `with` block."""
    from planners.placement.search import dual, forest
    from planners.placement.search.linear import Programme
    from planners.placement.search.reduction import Reduction

    with replaced(
        (
            (Reduction, "run", recorder.timed("reduce", Reduction.run, "reductions")),
            (dual, "pass_messages", recorder.timed("bound", dual.pass_messages, "sweeps")),
            (forest, "forest_steps", recorder.timed("search", forest.forest_steps, "searches")),
            (Programme, "relax", recorder.timed("programme", Programme.relax)),
            (Programme, "solve", recorder.timed("programme", Programme.solve)),
        )
    ):
        yield


def document(problem: PlacementProblem, decision: Plan) -> dict[str, Any]:
    """Return a plan as `shardbench plan` writes it; `states` is the form that the contest takes."""
    return {
        "format": "shardbench-states",
        "version": 1,
        "problem": problem.name,
        "quality": dict(quality(problem, decision)),
        "states": decision.choice.tolist(),
    }


def _ranks(problem: PlacementProblem, decision: Plan) -> RankTable:
    """Return one row: every device has the same memory in use."""
    return RankTable(
        columns=("peak GiB",),
        rows=((peak_of(problem, decision.choice) / _GIB,),),
        capacities=(problem.limit / _GIB,),
        bar="peak GiB",
    )


PLANNING: Planning[PlacementProblem, Plan] = Planning(
    variant="certified",
    document=document,
    ranks=_ranks,
    limited=PlacementProblem.limited,
)

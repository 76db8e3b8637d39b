"""The smallest family, with every ability that a family can have; `my_library` has its planner."""

from contextlib import nullcontext
from types import SimpleNamespace

from harness.contract import Abilities, Family, Prepared, Quality

WORK = SimpleNamespace(
    build=lambda workload, topology: {"gpus": topology.gpus},
    facts=lambda problem: {"gpus": problem["gpus"]},
    fingerprint=str,
    validate=lambda problem, decision: None,
    quality=lambda problem, decision: {"sum": decision},
    observe=lambda recorder: nullcontext(),
)
FAMILY = Family("sums", "adds numbers up", WORK, (Quality("sum"),))


@FAMILY.variant("loop", reference=True)
def loop(problem):
    """Add them one by one"""
    return Prepared(run=lambda: sum(range(problem["gpus"])))


FAMILY.abilities = Abilities(
    planning="my_planners.abilities:PLANNING",
    explain="my_planners.abilities:explain",
    explain_table="my_planners.abilities:explain_table",
    figures="my_planners.abilities:figures",
    inventory="my_planners.abilities:inventory",
    importing="my_planners.abilities:read",
    capture="my_planners.abilities:capture",
    series="my_planners.abilities:SERIES",
    topology="my_planners.abilities:TOPOLOGY",
    measuring="my_planners.abilities:SumBench",
    machines="my_planners.abilities:machines",
)

"""Plan once, for use: build the problem, call one variant, check its decision, and hand it over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.contract import Family, Measured, Planning
from harness.contract.family import load
from harness.contract.variants import Variant
from harness.measuring.request import Request
from harness.measuring.timing.clock import Clock, SystemClock
from harness.model.cell import Bound, Quality, RankTable, find_bound
from harness.model.errors import ShardbenchError, UsageError, one_line
from harness.model.ids import CellId, WorkloadSpec
from harness.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Planned:
    """A decision for use. Times are wall seconds; `whole_s` is with building and setting up."""

    cell: CellId
    document: Mapping[str, Any]
    ranks: RankTable
    quality: Mapping[str, float]
    first: Quality
    bound: Bound | None
    planning_s: float
    whole_s: float


def plan(
    family: Family[Any, Any],
    workload: WorkloadSpec,
    topology: Topology,
    variant: str = "",
    seconds: float | None = None,
    clock: Clock | None = None,
) -> Planned:
    """Plan once in this process, with the family's own choice of a variant where none is named.

    Raises:
        UsageError: the family does not plan, knows no such variant or no limit in `seconds`.
        InfeasibleDecision: the decision cannot be carried out.
        ShardbenchError: the variant is not installed, or found no decision.
    """
    clock = clock or SystemClock()
    planning: Planning[Any, Any] | None = load(family.abilities.planning)
    if planning is None:
        raise UsageError(f"Family '{family.name}' does not plan; it only compares its variants.")
    chosen = family.find(variant or planning.variant)
    cell = Request(family, workload, topology).cell_id(chosen.name)
    check_installed(chosen)
    if seconds is not None and planning.limited is None:
        raise UsageError(f"Planning with family '{family.name}' takes no limit in seconds.")
    began = clock.wall()
    problem = family.work.build(workload, topology)
    if seconds is not None and planning.limited is not None:
        problem = planning.limited(problem, seconds)
    decision, started, ended = decide(family, chosen, problem, clock)
    return Planned(
        cell,
        planning.document(problem, decision),
        planning.ranks(problem, decision),
        family.work.quality(problem, decision),
        family.qualities[0],
        find_bound(family.qualities),
        ended - started,
        ended - began,
    )


def check_installed(variant: Variant[Any, Any]) -> None:
    """Raise ShardbenchError where something is missing that a variant needs."""
    if missing := variant.missing():
        raise ShardbenchError(f"'{variant.name}' is not installed: it needs {', '.join(missing)}.")


def decide(
    family: Family[Any, Any], variant: Variant[Any, Any], problem: Any, clock: Clock
) -> tuple[Any, float, float]:
    """Call a variant once in this process; returns its decision, and when the call began and ended.

    Raises:
        InfeasibleDecision: the decision cannot be carried out.
        ShardbenchError: the variant found no decision.
    """
    try:
        prepared = variant.prepared(problem)
        try:
            with prepared.installed():
                prepared.begin()
                started = clock.wall()
                result = prepared.run()
                ended = clock.wall()
        finally:
            prepared.close()
    except ShardbenchError:
        raise
    except Exception as error:  # a variant may raise anything, e.g. where nothing fits
        raise ShardbenchError(f"'{variant.name}' found no decision: {one_line(error)}") from error
    decision = result.decision if isinstance(result, Measured) else result
    family.work.validate(problem, decision)
    return decision, started, ended

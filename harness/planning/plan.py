"""Plan once for use, explain a decision, or compare it with the plan that is made today."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.contract import (
    Explanation,
    Measured,
    Moving,
    Planning,
    Question,
    Remedies,
    Remedy,
)
from harness.contract.abilities import load
from harness.contract.variants import Variant
from harness.measuring.request import BUILDING, Request
from harness.measuring.time_limit import TimeIsUp, time_limit
from harness.measuring.timing.turns import SystemClock
from harness.model.cell import RankTable
from harness.model.errors import (
    InfeasibleDecision,
    NotApplicable,
    ShardbenchError,
    UsageError,
    one_line,
)
from harness.model.ids import CellId
from harness.model.quality import Bound, Quality, find_bound

_REMEDY_SECONDS = 20.0
_BASELINE_SECONDS = 10.0

Begins = Callable[[str], None]
"""A function that is called with each stage that begins, in a few words."""


def _silent(stage: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Near:
    """The file of the current plan, and the maximum number of GiB that a new plan may move.

    `lost` has the ranks of the current plan that no longer exist; empty if they are the last ranks.
    """

    path: Path
    gib: float = math.inf
    lost: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A decision on a problem, for use.

    `planning_s` is the wall time in seconds of the planner call. `moved_gib` is the amount of data
    that changes ranks relative to the current plan, None if none was given. `changes` are sentences
    on what a remedy changed in the problem. `ruler` says by which estimate it is judged.
    """

    cell: CellId
    document: Mapping[str, Any]
    ranks: RankTable
    quality: Mapping[str, float]
    first: Quality
    bound: Bound | None
    planning_s: float
    moved_gib: float | None = None
    problem: Any = None
    changes: tuple[str, ...] = ()
    ruler: str = ""


def plan(
    request: Request,
    seconds: float | None = None,
    near: Near | None = None,
    begins: Begins = _silent,
) -> Planned:
    """Plan once in this process, with the request's variant or else the family's default.

    `seconds` limits the search.

    Raises:
        UsageError: the family does not support planning, the variant or a time limit, or cannot
            limit the moves from the plan in `near`.
        InfeasibleDecision: the decision is invalid.
        ShardbenchError: the variant is not installed, or found no decision.
    """
    variant, problem = _prepare(request, seconds, near, begins)
    begins(f"planning with {variant.name}")
    decision, took = _decide(variant, problem)
    begins("rating the plan")
    return _planned(request, variant.name, problem, decision, took, near is not None)


def front(
    request: Request, near: Near, seconds: float | None = None, begins: Begins = _silent
) -> Iterator[Planned]:
    """Yield decisions in increasing order of the GiB moved, each better than the previous one.

    Times count from the previous decision. Raises the same errors as `plan`.
    """
    variant, start = _prepare(request, seconds, near, begins)
    clock = SystemClock()
    begins("planning")
    began = clock.wall()
    for count, (problem, decision) in enumerate(_moving(request).front(start), start=1):
        took = clock.wall() - began
        yield _planned(request, variant.name, problem, decision, took, is_near=True)
        begins(f"planning, {count} found so far")
        began = clock.wall()


def _planning(request: Request) -> Planning[Any, Any]:
    planning: Planning[Any, Any] | None = load(request.family.abilities.planning)
    if planning is None:
        name = request.family.name
        raise UsageError(f"Family '{name}' does not plan; it only compares its variants.")
    return planning


def _moving(request: Request) -> Moving[Any, Any]:
    moving = _planning(request).moving
    if moving is None:
        raise UsageError(f"Planning with family '{request.family.name}' does not count what moves.")
    return moving


def _prepare(
    request: Request, seconds: float | None, near: Near | None, begins: Begins
) -> tuple[Variant[Any, Any], Any]:
    """Return the variant to plan with, and the problem with its limits of time and moves."""
    family, planning = request.family, _planning(request)
    variant = family.find(next(iter(request.variants), planning.variant))
    variant.check_installed()
    if seconds is not None and planning.limited is None:
        raise UsageError(f"Planning with family '{family.name}' takes no limit in seconds.")
    if near is not None and variant.name != planning.variant:
        raise UsageError(f"Only '{planning.variant}' stays near another decision.")
    begins(BUILDING)
    problem = request.build()
    if seconds is not None and planning.limited is not None:
        problem = planning.limited(problem, seconds)
    if near is not None:
        problem = _moving(request).within(problem, near.path, near.gib, near.lost)
    return variant, problem


def _planned(
    request: Request,
    variant: str,
    problem: Any,
    decision: Any,
    planning_s: float,
    is_near: bool = False,
    changes: tuple[str, ...] = (),
) -> Planned:
    """Return a decision with its figures. Raise InfeasibleDecision if it is invalid."""
    family, planning = request.family, _planning(request)
    family.work.validate(problem, decision)
    quality = family.work.quality(problem, decision)
    return Planned(
        cell=request.cell_id(variant),
        document=planning.document(problem, decision),
        ranks=planning.ranks(problem, decision),
        quality=quality,
        first=family.qualities[0],
        bound=find_bound(family.qualities),
        planning_s=planning_s,
        moved_gib=_moving(request).moved(problem, decision) if is_near else None,
        problem=problem,
        changes=changes,
        ruler=planning.ruler(problem, quality) if planning.ruler else "",
    )


def _decide(variant: Variant[Any, Any], problem: Any) -> tuple[Any, float]:
    """Call a variant once; return its decision and the call's wall seconds."""
    clock = SystemClock()
    try:
        prepared = variant.prepared(problem)
        try:
            with prepared.installed():
                prepared.begin()
                started = clock.wall()
                result = prepared.run()
                took = clock.wall() - started
        finally:
            prepared.close()
    except NotApplicable as error:
        raise UsageError(f"'{variant.name}' cannot plan this: {error}") from error
    except ShardbenchError:
        raise
    except Exception as error:  # a variant may raise anything, e.g. where nothing fits
        raise ShardbenchError(f"'{variant.name}' found no decision: {one_line(error)}") from error
    return result.decision if isinstance(result, Measured) else result, took


def find_remedies(request: Request, begins: Begins = _silent) -> Remedies[Any, Any]:
    """Return the remedies for a problem without a decision; none if the family has no search."""
    planning: Planning[Any, Any] | None = load(request.family.abilities.planning)
    if planning is None or planning.remedies is None:
        return Remedies((), (), ())
    begins(BUILDING)
    problem = request.build()
    begins("looking for remedies")
    return planning.remedies(problem, _REMEDY_SECONDS)


def fixed(request: Request, remedy: Remedy[Any, Any], planning_s: float) -> Planned:
    """Return the record of a remedy's decision on the changed problem; raises as `plan`."""
    made = (remedy.problem, remedy.decision, planning_s)
    return _planned(request, _planning(request).variant, *made, changes=remedy.changes)


@dataclass(frozen=True, slots=True)
class Explained:
    """An explanation of a cell's decision, or of its difference from the decision of `against`.

    `against` is the other variant, empty if there is none. `planning_s` is the wall time in seconds
    of the planner call.
    """

    cell: CellId
    against: str
    explanation: Explanation
    planning_s: float


def explain(
    request: Request,
    rank: int | None = None,
    top: int = 5,
    table: str = "",
    begins: Begins = _silent,
) -> Explained:
    """Plan once in this process with each variant, and explain the first variant's decision.

    The request has one variant, and perhaps a variant `against` to compare with; the other
    arguments are those of `Question`.

    Raises:
        UsageError: the family explains no decisions, or no tables, a variant is unknown, both
            variants are the same, or the rank or table does not exist.
        InfeasibleDecision: a decision is invalid.
        ShardbenchError: a variant is not installed, or found no decision.
    """
    family = request.family
    explaining = load(family.abilities.explain_table if table else family.abilities.explain)
    if explaining is None:
        parts = "single tables" if table else "its decisions"
        raise UsageError(f"Family '{family.name}' does not explain {parts}.")
    if table and (rank is not None or request.against):
        raise UsageError("--table takes neither --rank nor --against.")
    ranks = request.topology.gpus
    if rank is not None and not 0 <= rank < ranks:
        raise UsageError(f"There is no rank {rank}; ranks are from 0 to {ranks - 1}.")
    variants = [family.find(name) for name in (request.variants[0], request.against) if name]
    if variants[1:] == variants[:1]:
        raise UsageError(f"--against takes another variant than '{variants[0].name}' itself.")
    for variant in variants:
        variant.check_installed()
    begins(BUILDING)
    problem = request.build()
    decisions, seconds = [], []
    for variant in variants:
        begins(f"planning with {variant.name}")
        decision, took = _decide(variant, problem)
        family.work.validate(problem, decision)
        decisions.append(decision)
        seconds.append(took)
    begins("explaining the decision")
    other = decisions[1] if request.against else None
    explanation = explaining(
        problem, decisions[0], Question(rank, top, request.against, other, table)
    )
    return Explained(request.cell_id(variants[0].name), request.against, explanation, seconds[0])


@dataclass(frozen=True, slots=True)
class Baseline:
    """The first quality of the plan that `planner` makes; if it is None, a sentence says why."""

    planner: str
    value: float | None = None
    reason: str = ""


def baseline(request: Request, made: Planned, begins: Begins = _silent) -> Baseline | None:
    """Plan as the problem's planner does today, or as its model if a variant is not installed.

    Returns None if the family names no such planner, or if the plan `made` had to stay near another
    one, which no release does. Planning stops after as long as `made` took, and at least ten
    seconds. It must be called in the main thread.
    """
    family, planning = request.family, _planning(request)
    if planning.baseline is None or made.moved_gib is not None:
        return None
    planner, name = planning.baseline(made.problem)
    variant, first = family.find(name), made.first.name
    if family.root(family.find(made.cell.variant)) is family.root(variant):
        return Baseline(planner, made.quality[first])
    variant = family.root(variant) if variant.missing() else variant
    begins(f"planning with {variant.name}")
    limit = max(_BASELINE_SECONDS, made.planning_s)
    try:
        variant.check_installed()
        with time_limit(limit):
            decision, _ = _decide(variant, made.problem)
            family.work.validate(made.problem, decision)
            return Baseline(planner, family.work.quality(made.problem, decision)[first])
    except TimeIsUp:
        reason = f"{planner} finds no plan within {limit:.0f} s."
    except InfeasibleDecision:
        reason = f"{planner} finds no plan."
    except ShardbenchError as error:
        reason = f"{planner}'s own plan is unknown: {error}"
    return Baseline(planner, None, reason)

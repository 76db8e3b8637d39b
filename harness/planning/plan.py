"""Make one plan for use: build the problem, call one variant, check its decision; find remedies."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.contract import Family, Measured, Moving, Planning, Remedies, Remedy
from harness.contract.family import load
from harness.contract.variants import Variant
from harness.measuring.request import BUILDING, Request
from harness.measuring.timing.turns import SystemClock
from harness.model.cell import RankTable
from harness.model.errors import NotApplicable, ShardbenchError, UsageError, one_line
from harness.model.ids import CellId
from harness.model.quality import Bound, Quality, find_bound

_REMEDY_SECONDS = 20.0


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
    on what a remedy changed in the problem.
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

    @classmethod
    def of(
        cls,
        request: Request,
        variant: str,
        problem: Any,
        decision: Any,
        planning_s: float,
        **more: Any,
    ) -> "Planned":
        """Return the record of a variant's decision, with its JSON document and figures."""
        family, planning = request.family, load(request.family.abilities.planning)
        return cls(
            request.cell_id(variant),
            planning.document(problem, decision),
            planning.ranks(problem, decision),
            family.work.quality(problem, decision),
            family.qualities[0],
            find_bound(family.qualities),
            planning_s,
            problem=problem,
            **more,
        )


def plan(
    request: Request,
    seconds: float | None = None,
    near: Near | None = None,
    clock: SystemClock | None = None,
    begins: Callable[[str], None] = lambda stage: None,
) -> Planned:
    """Plan once in this process, with the request's variant or else the family's default.

    `seconds` limits the search, and `begins` is called with each stage that begins.

    Raises:
        UsageError: the family does not support planning, the variant or a time limit, or cannot
            limit the moves from the plan in `near`.
        InfeasibleDecision: the decision is invalid.
        ShardbenchError: the variant is not installed, or found no decision.
    """
    job = _Job(request, seconds, near, begins)
    begins(f"planning with {job.variant.name}")
    decision, started, ended = decide(
        request.family, job.variant, job.problem, clock or SystemClock()
    )
    begins("rating the plan")
    return job.planned(job.problem, decision, ended - started)


def front(
    request: Request,
    near: Near,
    seconds: float | None = None,
    begins: Callable[[str], None] = lambda stage: None,
) -> Iterator[Planned]:
    """Yield decisions in increasing order of the GiB moved, each better than the previous one.

    Times count from the previous decision. Raises the same errors as `plan`.
    """
    job, clock = _Job(request, seconds, near, begins), SystemClock()
    begins("planning")
    began = clock.wall()
    for made, (problem, decision) in enumerate(job.moving.front(job.problem), start=1):
        ended = clock.wall()
        request.family.work.validate(problem, decision)
        yield job.planned(problem, decision, ended - began)
        begins(f"planning, {made} found so far")
        began = clock.wall()


class _Job:
    """A problem to plan for use, with the variant and the functions of its family."""

    def __init__(
        self,
        request: Request,
        seconds: float | None,
        near: Near | None,
        begins: Callable[[str], None],
    ) -> None:
        self._request, family = request, request.family
        planning: Planning[Any, Any] | None = load(family.abilities.planning)
        if planning is None:
            raise UsageError(
                f"Family '{family.name}' does not plan; it only compares its variants."
            )
        self._planning, self._near = planning, near
        self.variant = family.find(next(iter(request.variants), planning.variant))
        self.variant.check_installed()
        if seconds is not None and planning.limited is None:
            raise UsageError(f"Planning with family '{family.name}' takes no limit in seconds.")
        if near is not None and self.variant.name != planning.variant:
            raise UsageError(f"Only '{planning.variant}' stays near another decision.")
        begins(BUILDING)
        self.problem = request.build()
        if seconds is not None and planning.limited is not None:
            self.problem = planning.limited(self.problem, seconds)
        if near is not None:
            self.problem = self.moving.within(self.problem, near.path, near.gib, near.lost)

    @property
    def moving(self) -> Moving[Any, Any]:
        """The family's functions for limited moves. Raises UsageError if there are none."""
        if self._planning.moving is None:
            raise UsageError(
                f"Planning with family '{self._request.family.name}' does not count what moves."
            )
        return self._planning.moving

    def planned(self, problem: Any, decision: Any, planning_s: float) -> Planned:
        """Return the record of a decision, with the GiB that it moves."""
        moved = None if self._near is None else self.moving.moved(problem, decision)
        return Planned.of(
            self._request, self.variant.name, problem, decision, planning_s, moved_gib=moved
        )


def decide(
    family: Family[Any, Any], variant: Variant[Any, Any], problem: Any, clock: SystemClock
) -> tuple[Any, float, float]:
    """Call a variant once in this process; return its decision and the call's start and end.

    Start and end are wall seconds of `clock`.

    Raises:
        InfeasibleDecision: the decision is invalid.
        UsageError: the variant does not support the problem.
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
    except NotApplicable as error:
        raise UsageError(f"'{variant.name}' cannot plan this: {error}") from error
    except ShardbenchError:
        raise
    except Exception as error:  # a variant may raise anything, e.g. where nothing fits
        raise ShardbenchError(f"'{variant.name}' found no decision: {one_line(error)}") from error
    decision = result.decision if isinstance(result, Measured) else result
    family.work.validate(problem, decision)
    return decision, started, ended


def find_remedies(
    request: Request, begins: Callable[[str], None] = lambda stage: None
) -> Remedies[Any, Any]:
    """Return the remedies for a problem without a decision; none if the family searches for none.

    `begins` is called with each stage that begins.
    """
    planning: Planning[Any, Any] | None = load(request.family.abilities.planning)
    if planning is None or planning.remedies is None:
        return Remedies((), (), ())
    begins(BUILDING)
    problem = request.build()
    begins("looking for remedies")
    return planning.remedies(problem, _REMEDY_SECONDS)


def fixed(request: Request, remedy: Remedy[Any, Any], planning_s: float) -> Planned:
    """Return the record of a remedy's decision, after checking it on the changed problem."""
    planning: Planning[Any, Any] = load(request.family.abilities.planning)
    problem, decision = remedy.problem, remedy.decision
    request.family.work.validate(problem, decision)
    return Planned.of(
        request, planning.variant, problem, decision, planning_s, changes=remedy.changes
    )

"""Check a variant: make one observed call, then validate, fingerprint and rate its decision."""

import gc
import numbers
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.contract import Family, Measured, Planning, Recorder
from harness.contract.abilities import load
from harness.contract.recorder import observed_call
from harness.contract.variants import Variant
from harness.execution.usage import begin_peak, peak
from harness.measuring.timing.turns import SystemClock
from harness.model.cell import FrontPoint, RankTable
from harness.model.declared import LEAST
from harness.model.errors import RegistryError
from harness.model.quality import find_bound


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one checked call; `OF_CELLS` names the fields that a cell has, too.

    The times of an observed call include the observer's work. `peak_memory_bytes` is the peak
    resident memory during the call, and `memory_before_bytes` the resident memory just before; both
    are None for a call in another process. `front` has better decisions, each with the GiB that
    must move to change this decision into it. `facts` are those of the problem.
    """

    OF_CELLS: ClassVar = (
        *("fingerprint", "quality", "counters", "phases", "peak_memory_bytes"),
        *("memory_before_bytes", "ranks", "front", "facts"),
    )

    fingerprint: str
    quality: Mapping[str, float]
    counters: Mapping[str, int]
    phases: Mapping[str, float]
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int | None
    memory_before_bytes: int | None
    ranks: RankTable | None = None
    front: tuple[FrontPoint, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def check(
    family: Family[Any, Any],
    variant: Variant[Any, Any],
    problem: Any,
    clock: SystemClock,
    call_begins: Callable[[Recorder], None] = lambda recorder: None,
    call_ended: Callable[[], None] = lambda: None,
    with_front: bool = False,
    observed: bool = True,
) -> Checked:
    """Call a variant once, under the family's observer unless that is not wanted, and check it.

    `call_begins` and `call_ended` are called just before and after the call. `with_front` adds
    `Checked.front`.

    Raises:
        InfeasibleDecision: the decision cannot be deployed, e.g. exceeds memory.
        RegistryError: the variant or the family breaks the contract.
    """
    prepared = variant.prepared(problem)
    try:
        recorder = Recorder()
        with ExitStack() as stack:
            if observed:
                stack.enter_context(observed_call())
                stack.enter_context(family.work.observe(recorder))
            stack.enter_context(prepared.installed())
            prepared.begin()
            if not observed:
                gc.collect()  # else what set-up allocated may start a collection in the call
            before: int | None = begin_peak()
            call_begins(recorder)
            wall_s, cpu_s = clock.wall(), clock.cpu()
            with recorder.call():
                result = prepared.run()
            wall_s, cpu_s = clock.wall() - wall_s, clock.cpu() - cpu_s
            reached: int | None = peak()
            call_ended()
        # 1. What was measured: here, or by another process.
        counters, phases = {}, {}
        if observed:
            counters = {known.name: recorder.counters[known.name] for known in family.counters}
            phases = dict.fromkeys(family.phases, 0.0) | recorder.phases
        if isinstance(result, Measured):
            counters = {name: int(amount) for name, amount in result.counters.items()}
            phases = {name: float(seconds) for name, seconds in result.phases.items()}
            wall_s, cpu_s = float(result.wall_s), float(result.cpu_s)
            before = reached = None
            result = result.decision
        # 2. The decision: it must be valid, and no better than a proven bound.
        family.work.validate(problem, result)
        quality = dict(family.work.quality(problem, result))
        of_variant = f"of '{family.name}/{variant.name}' is"
        for name, value in quality.items():
            # NaN is not at most anything.
            if not (isinstance(value, numbers.Real) and abs(value) <= 1 / LEAST):
                said = str(value)[:40]
                raise RegistryError(f"Quality '{name}' {of_variant} {said}, not a number.")
            quality[name] = float(value)
        bound = find_bound(family.qualities)
        if bound and bound.is_passed(quality):
            raise RegistryError(
                f"Quality '{bound.quality}' {of_variant} {quality[bound.quality]:g}, better than "
                f"its proven bound '{bound.name}' of {quality[bound.name]:g}."
            )
        planning = load(family.abilities.planning)
        return Checked(
            family.work.fingerprint(result),
            quality,
            counters,
            phases,
            wall_s,
            cpu_s,
            reached,
            before,
            planning.ranks(problem, result) if planning else None,
            _front(family, planning, problem, result) if with_front else (),
            dict(family.work.facts(problem)),
        )
    finally:
        prepared.close()


def _front(
    family: Family[Any, Any], planning: Planning[Any, Any] | None, problem: Any, decision: Any
) -> tuple[FrontPoint, ...]:
    """Return the move-budget front of a decision; empty if finding it takes more than seconds."""
    moving = planning.moving if planning else None
    near = moving.near(problem, decision) if moving else None
    if moving is None or near is None:
        return ()
    first, bound = family.qualities[0].name, find_bound(family.qualities)
    points = []
    for within, made in moving.front(near):
        family.work.validate(within, made)
        quality = family.work.quality(within, made)
        points.append(
            FrontPoint(
                moving.moved(within, made),
                quality[first],
                quality[bound.name] if bound else None,
            )
        )
    return tuple(points)

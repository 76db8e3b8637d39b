"""The checked call: one observed call whose decision is validated, fingerprinted and rated."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.clock import Clock
from harness.errors import RegistryError
from harness.registry import Family, Measured, Prepared, Recorder, Variant


@dataclass(frozen=True, slots=True)
class Checked:
    """What one observed call showed. Its time includes the observing, so it is no measurement."""

    fingerprint: str
    quality: Mapping[str, float]
    counters: Mapping[str, int]
    phases: Mapping[str, float]
    wall_s: float


def check(
    family: Family[Any, Any],
    variant: Variant[Any, Any],
    problem: Any,
    clock: Clock,
    call_begins: Callable[[Recorder], None] = lambda recorder: None,
    call_ended: Callable[[], None] = lambda: None,
) -> Checked:
    """Call a variant once under the family's observer, and check what it decided.

    Raises:
        InfeasibleDecision: the decision cannot be carried out.
        RegistryError: the variant or the family breaks the contract.
    """
    prepared = variant.prepared(problem)
    try:
        recorder = Recorder()
        with family.observe(recorder), prepared.installed():
            call_begins(recorder)
            started = clock.wall()
            with recorder.call():
                result = prepared.run()
            wall_s = clock.wall() - started
            call_ended()
        counters = {each.name: recorder.counters[each.name] for each in family.counters}
        phases = {name: recorder.phases.get(name, 0.0) for name in family.phases} | {
            name: seconds for name, seconds in recorder.phases.items() if name not in family.phases
        }
        if isinstance(result, Measured):
            counters, phases = dict(result.counters), dict(result.phases)
            wall_s = result.wall_s
            result = result.decision
        if isinstance(result, Prepared):
            raise RegistryError(
                f"Variant '{family.name}/{variant.name}' returns Prepared but is not annotated so; "
                "write '-> Prepared' behind its arguments."
            )
        family.validate(problem, result)
        quality = {name: float(value) for name, value in family.quality(problem, result).items()}
        for name, value in quality.items():
            if not math.isfinite(value):
                raise RegistryError(
                    f"Quality '{name}' of '{family.name}/{variant.name}' is {value}, not a number."
                )
        return Checked(family.fingerprint(result), quality, counters, phases, wall_s)
    finally:
        prepared.close()

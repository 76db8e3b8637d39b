"""Releases of a library as the variants of a family, measured as any others are."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from msgspec import Struct, field, to_builtins

from harness.contract import (
    Counter,
    Family,
    Measured,
    Prepared,
    Recorder,
    Releases,
    ShardbenchError,
    Topology,
    Upstream,
    WorkloadSpec,
    is_observing,
)
from harness.contract.registry import Registry
from harness.model.cell import Cell
from harness.model.declared import Amount, Count, Name, Number, checked
from harness.series.installing import Missing, Place
from harness.series.naming import is_build_of, version_of

CALLS = "calls "
"""The beginning of the counters that say how many calls each function makes."""

DriverRequest = dict[str, Any]
"""A problem as a driver is asked it: `workload` as in ids, and the fields of `topology`."""


class ReleaseAnswer(Struct, frozen=True):
    """The answer of a driver; what is counted is there where counting was asked for."""

    release: Name
    fingerprint: Name
    wall_s: Amount
    cpu_s: Amount
    phases: dict[str, Amount]
    quality: dict[str, Number] = field(default_factory=dict)
    counters: dict[str, Count] = field(default_factory=dict)
    calls: dict[str, Count] = field(default_factory=dict)


class _ReleaseWork:
    """The work on problems and decisions, which is the driver's own."""

    def build(self, workload: WorkloadSpec, topology: Topology) -> DriverRequest:
        return {"workload": str(workload), "topology": to_builtins(topology)}

    def facts(self, _: DriverRequest) -> Mapping[str, float | str]:
        return {}

    def fingerprint(self, answer: ReleaseAnswer) -> str:
        return answer.fingerprint

    def validate(self, _: DriverRequest, __: ReleaseAnswer) -> None:
        pass

    def quality(self, _: DriverRequest, answer: ReleaseAnswer) -> Mapping[str, float]:
        return answer.quality

    def observe(self, _: Recorder) -> AbstractContextManager[None]:
        return nullcontext()


def family_of(
    releases: Releases, places: Sequence[Place | Missing], base: Family[Any, Any] | None = None
) -> Family[DriverRequest, ReleaseAnswer]:
    """Return a family whose variants are releases, the oldest that is there as the reference.

    Workloads are called as those of `base`.
    """
    family: Family[DriverRequest, ReleaseAnswer] = Family(
        name=releases.library,
        summary=f"releases of {releases.library}",
        implementation=_ReleaseWork(),
        qualities=releases.qualities,
        counters=tuple(Counter(*each) for each in releases.counters.items()),
        phases=releases.phases,
        label=base.label if base else lambda workload: workload,
    )
    ordered = sorted(places, key=lambda each: version_of(each.release))
    first = next((each for each in ordered if isinstance(each, Place)), ordered[0])
    for each in ordered:
        register = family.variant(each.release, summary="a release", reference=each is first)
        register(partial(_prepared, releases, each))
    return family


def release_registry(releases: Releases, places: Sequence[Place | Missing]) -> Registry:
    """Return the registry in which child processes find the family."""
    return Registry([family_of(releases, places)])


def _prepared(
    releases: Releases, place: Place | Missing, problem: DriverRequest
) -> Prepared[ReleaseAnswer]:
    if isinstance(place, Missing):
        raise ShardbenchError(place.reason)
    name = f"{releases.library} {place.release}"
    upstream = Upstream(name, releases.driver, place.folder)

    def run() -> Measured[ReleaseAnswer]:
        kind = "counts" if is_observing() else "times"
        answer = checked(
            upstream.ask(problem | {"kind": kind}), ReleaseAnswer, f"The driver of {name}"
        )
        if not is_build_of(answer.release, place.release):
            raise ShardbenchError(f"Its folder holds {answer.release}.")
        counters = {**answer.counters, **{CALLS + k: v for k, v in answer.calls.items()}}
        return Measured(answer, answer.wall_s, answer.cpu_s, counters, answer.phases)

    return Prepared(run, close=upstream.close)


def calls_of(cell: Cell) -> dict[str, int]:
    """Return the calls that a release makes while the profiled phase runs, by who makes them."""
    return {
        name.removeprefix(CALLS): count
        for name, count in cell.counters.items()
        if name.startswith(CALLS)
    }

"""Releases of a library as the variants of a family, measured as any others are."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, field, structs, to_builtins

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
from harness.measuring.environment import environment
from harness.model.cell import Amount, Cell, Count, Environment, Number
from harness.model.declared import checked
from harness.releases.installing import Missing, Place
from harness.releases.naming import version_of

CALLS = "calls "
"""The beginning of the counters that say how many calls each function makes."""

Text = Annotated[str, Meta(min_length=1)]


class Problem(NamedTuple):
    """A workload as it is written in ids, on a topology; the driver builds it in its child."""

    workload: str
    topology: Topology


class Decided(NamedTuple):
    """The decision of a release, as its driver says it."""

    fingerprint: str
    quality: Mapping[str, float]


class Answer(Struct, frozen=True):
    """The answer of a driver; what is counted is there where counting was asked for."""

    release: Text
    fingerprint: Text
    wall_s: Amount
    cpu_s: Amount
    phases: dict[str, Amount]
    quality: dict[str, Number] = field(default_factory=dict)
    counters: dict[str, Count] = field(default_factory=dict)
    calls: dict[str, Count] = field(default_factory=dict)


class _Work:
    """The work on problems and decisions, which is the driver's own."""

    def build(self, workload: WorkloadSpec, topology: Topology) -> Problem:
        return Problem(str(workload), topology)

    def facts(self, _: Problem) -> Mapping[str, float | str]:
        return {}

    def fingerprint(self, decision: Decided) -> str:
        return decision.fingerprint

    def validate(self, _: Problem, __: Decided) -> None:
        pass

    def quality(self, _: Problem, decision: Decided) -> Mapping[str, float]:
        return decision.quality

    def observe(self, _: Recorder) -> AbstractContextManager[None]:
        return nullcontext()


def family_of(
    releases: Releases, places: Sequence[Place | Missing], base: Family[Any, Any] | None = None
) -> Family[Problem, Decided]:
    """Return a family whose variants are releases, the oldest that is there as the reference.

    Workloads are called as those of `base`.
    """
    family: Family[Problem, Decided] = Family(
        name=releases.library,
        summary=f"releases of {releases.library}",
        implementation=_Work(),
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


def _prepared(releases: Releases, place: Place | Missing, problem: Problem) -> Prepared[Decided]:
    if isinstance(place, Missing):
        raise ShardbenchError(place.reason)
    name = f"{releases.library} {place.release}"
    upstream = Upstream(name, releases.driver, place.folder)
    request = {"workload": problem.workload, "topology": to_builtins(problem.topology)}

    def run() -> Measured[Decided]:
        kind = "counts" if is_observing() else "times"
        answer = checked(upstream.ask(request | {"kind": kind}), Answer, f"{name}'s driver")
        if answer.release != place.release:
            raise ShardbenchError(f"Its folder holds {answer.release}.")
        counters = {**answer.counters, **{CALLS + k: v for k, v in answer.calls.items()}}
        decided = Decided(answer.fingerprint, answer.quality)
        return Measured(decided, answer.wall_s, answer.cpu_s, counters, answer.phases)

    return Prepared(run, close=upstream.close)


def environment_of(releases: Releases, seed: int = 0) -> Environment:
    """Return what releases are measured in: their code is the driver's, and not the library."""
    digest = hashlib.sha256()
    for path in sorted(releases.driver.parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    found = environment(seed)
    packages = {k: v for k, v in found.packages.items() if k != releases.library}
    return structs.replace(found, code=digest.hexdigest()[:12], packages=packages)


def calls_of(cell: Cell) -> dict[str, int]:
    """Return the calls that a release makes while the profiled phase runs, by who makes them."""
    return {
        name.removeprefix(CALLS): count
        for name, count in cell.counters.items()
        if name.startswith(CALLS)
    }

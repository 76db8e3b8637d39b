"""Measure the releases of a library as variants of a family, and reuse stored results."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from harness.contract import (
    Counter,
    Family,
    Measured,
    Prepared,
    Series,
    ShardbenchError,
    Upstream,
    is_observing,
)
from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.jobs import Listener
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.declared import checked
from harness.model.settings import SamplingRule, Settings
from harness.series.installing import Place, is_build_of, version_of
from harness.series.points import CALLS, Counted, Timed, environment_of, request_of
from harness.store.cells import CellStore
from harness.store.keys import Task, key_of, missing

DriverRequest = dict[str, Any]
Answer = Timed | Counted


def settings_of(turns: int, seconds: float, budget: float) -> Settings:
    """Return settings that time `turns` samples of each release, rounded up to an even number.

    After `seconds` no further pair of samples starts, but at least two pairs run.
    """
    blocks = math.ceil(turns / 2)
    return Settings(budget, SamplingRule(seconds, blocks, blocks, warmup_seconds=0.0))


def measure(
    request: Request,
    declared: Series,
    places: Sequence[Place],
    settings: Settings,
    store: CellStore,
    listen: Listener = lambda event: None,
) -> list[Cell]:
    """Measure the releases that have no stored cell, store theirs, and return all cells.

    `request` must use the family that `family_of` builds from `places`. The caller must hold the
    lock of `store`. Failed releases are not stored, so the next call runs them again.
    """
    described = environment_of(declared)
    key = key_of(described, settings, request.reference.name)
    ids = frozenset(str(request.cell_id(name)) for name in request.names())
    (found,) = missing([Task(request, ids, key, declared.earlier)], store.entries)
    stored = tuple(cell for cell in found.values if cell.status == "ok")
    if {cell.variant for cell in stored} >= request.names():
        return list(stored)
    registry = partial(release_registry, declared, tuple(places))
    cells = Comparison(replace(request, stored=stored), settings, registry).run(listen)
    load = environment(0).load  # the load average of the last minute
    for cell in cells:
        cell.environment, cell.key = structs.replace(described, load=load), str(key)
    store.add_cells(cell for cell in cells if cell.status == "ok")
    return [*stored, *cells]


# The driver builds the problem and validates the decision.
_WORK: Any = SimpleNamespace(
    build=request_of,
    facts=lambda problem: {},
    fingerprint=lambda answer: answer.fingerprint,
    validate=lambda problem, answer: None,
    quality=lambda problem, answer: answer.quality if isinstance(answer, Counted) else {},
    observe=lambda recorder: nullcontext(),
)


def family_of(
    declared: Series, places: Sequence[Place], base: Family[Any, Any] | None = None
) -> Family[DriverRequest, Answer]:
    """Return a family with releases as variants; the oldest installed release is the reference.

    Workloads have the same labels as in the family `base`.
    """
    family: Family[DriverRequest, Answer] = Family(
        name=declared.library,
        summary=f"releases of {declared.library}",
        implementation=_WORK,
        qualities=declared.qualities,
        counters=tuple(Counter(*named) for named in declared.counters.items()),
        phases=declared.releases.phases if declared.releases else (),
        label=base.label if base else lambda workload: workload,
    )
    ordered = sorted(places, key=lambda place: version_of(place.release))
    first = next((place for place in ordered if not place.missing), ordered[0])
    for place in ordered:
        register = family.variant(place.release, summary="a release", reference=place is first)
        register(partial(_prepared, declared, place))
    return family


def release_registry(declared: Series, places: Sequence[Place]) -> Registry:
    """Return a registry with the family of releases, for child processes."""
    return Registry([family_of(declared, places)])


def _prepared(declared: Series, place: Place, problem: DriverRequest) -> Prepared[Answer]:
    if place.missing:
        raise ShardbenchError(place.missing)
    name = f"{declared.library} {place.release}"
    upstream = Upstream(name, declared.driver, place.folder)
    part = declared.first_part

    def run() -> Measured[Answer]:
        timed = checked(upstream.ask(problem | {"kind": "times"}), Timed, f"The driver of {name}")
        if not is_build_of(timed.release, place.release):
            raise ShardbenchError(f"Its folder holds {timed.release}.")
        if not is_observing():
            return Measured(timed, timed.wall_s, timed.cpu_s, {}, timed.phases)
        asked = problem | {"kind": "counts", "parts": [part]}
        counted = checked(upstream.ask(asked), Counted, f"The driver of {name}")
        calls = {CALLS + maker: count for maker, count in counted.calls.get(part, {}).items()}
        counters = {**counted.counters, **calls}
        return Measured(counted, timed.wall_s, timed.cpu_s, counters, timed.phases)

    return Prepared(run, close=upstream.close)

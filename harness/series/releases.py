"""Measure the releases of a library as variants of a family, and reuse stored results."""

import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from harness.contract import (
    Counter,
    Family,
    Measured,
    Prepared,
    Series,
    ShardbenchError,
    Topology,
    Upstream,
    WorkloadSpec,
    is_observing,
)
from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.jobs import Listener
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.settings import SamplingRule, Settings
from harness.series import driving
from harness.series.driving import Counted, Timed
from harness.series.installing import Place, version_of
from harness.series.points import CALLS, environment_of
from harness.store.cells import CellStore
from harness.store.keys import Task, key_of, missing

Answer = Timed | Counted
A = TypeVar("A", Timed, Counted)


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
    (known,) = missing([Task(request, ids, key, declared.earlier)], store.entries)
    stored = tuple(cell for cell in known.values if cell.status == "ok")
    if {cell.variant for cell in stored} >= request.names():
        return list(stored)
    registry = partial(release_registry, declared, tuple(places))
    cells = Comparison(replace(request, stored=stored), settings, registry).run(listen)
    load = environment(0).load  # the load average of the last minute
    for cell in cells:
        cell.environment, cell.key = structs.replace(described, load=load), str(key)
    store.add_cells(cell for cell in cells if cell.status == "ok")
    return [*stored, *cells]


def family_of(
    declared: Series, places: Sequence[Place], base: Family[Any, Any] | None = None
) -> Family[driving.Request, Answer]:
    """Return a family with releases as variants; the oldest installed release is the reference.

    Workloads have the same labels as in the family `base`.
    """

    def build(workload: WorkloadSpec, topology: Topology) -> driving.Request:
        driver = str(declared.driver)
        return driving.Request(driver, str(workload), topology, (declared.first_part,))

    work: Any = SimpleNamespace(  # the driver builds the problem
        build=build,
        facts=lambda problem: {},
        fingerprint=lambda answer: answer.fingerprint,
        validate=lambda problem, answer: None,
        quality=lambda problem, answer: getattr(answer, "quality", {}),
        observe=lambda recorder: nullcontext(),
    )
    family: Family[driving.Request, Answer] = Family(
        name=declared.library,
        summary=f"releases of {declared.library}",
        implementation=work,
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


def _prepared(declared: Series, place: Place, problem: driving.Request) -> Prepared[Answer]:
    if place.missing:
        raise ShardbenchError(place.missing)
    upstream = Upstream(f"{declared.library} {place.release}", driving.__name__, place.folder)
    request = msgspec.to_builtins(problem)

    def ask(kind: str, answer: type[A]) -> A:
        given = msgspec.convert(upstream.ask(request | {"kind": kind}), answer)
        # Of the installed release, the sources may be elsewhere.
        is_installed = str(place.folder) in sys.path
        if not is_installed and not Path(given.imported_from).is_relative_to(place.folder):
            raise ShardbenchError(f"It was not imported, but {given.imported_from}")
        return given

    def run() -> Measured[Answer]:
        timed = ask("times", Timed)
        if not is_observing():
            return Measured(timed, timed.wall_s, timed.cpu_s, {}, timed.phases)
        counted = ask("counts", Counted)
        made = counted.calls[declared.first_part]
        counters = dict.fromkeys(declared.counters, 0) | counted.counters
        counters |= {CALLS + maker: count for maker, count in made.items()}
        return Measured(counted, timed.wall_s, timed.cpu_s, counters, timed.phases)

    return Prepared(run, close=upstream.close)

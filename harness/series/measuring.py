"""Measure releases on a problem, and resume what is stored."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import structs

from harness.contract import Releases
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.monitor import Listener
from harness.measuring.request import Request
from harness.model.cell import Cell, Environment
from harness.model.settings import SamplingRule, Settings
from harness.series.installing import Missing, Place
from harness.series.variants import release_registry
from harness.store.results import append_cells
from harness.suites.sweep import Site, resumed


def settings_of(turns: int, seconds: float, budget: float) -> Settings:
    """Return settings by which each release takes so many turns, rounded up to pairs.

    After `seconds` no further pair is begun, but two are taken in any case.
    """
    blocks = math.ceil(turns / 2)
    return Settings(budget, SamplingRule(seconds, blocks, blocks, warmup_seconds=0.0))


def environment_of(declared: Releases) -> Environment:
    """Return what releases are measured in: their code is the driver's, and not the library."""
    digest = hashlib.sha256()
    for path in sorted(declared.driver.parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    found = environment(0)
    packages = {k: v for k, v in found.packages.items() if k != declared.library}
    return structs.replace(found, code=digest.hexdigest()[:12], packages=packages)


def measure(
    request: Request,
    declared: Releases,
    places: Sequence[Place | Missing],
    settings: Settings,
    results: Path,
    listen: Listener = lambda event: None,
) -> list[Cell]:
    """Measure what is not stored yet, store it, and return the cells of all releases.

    `request` is of the family that `family_of` makes of `places`, and who calls holds `results`.
    What failed is not stored, so that the next time runs it again.
    """
    described = environment_of(declared)
    (request,) = resumed([request], results, settings, Site(described))
    held = tuple(cell for cell in request.stored if cell.status == "ok")
    if {cell.variant for cell in held} >= request.names():
        return list(held)
    registry = partial(release_registry, declared, tuple(places))
    cells = Comparison(replace(request, stored=held), settings, registry).run(listen)
    load = environment_of(declared).load  # of the last minute
    for cell in cells:
        cell.environment = structs.replace(described, load=load)
    append_cells(results, [cell for cell in cells if cell.status == "ok"])
    return [*held, *cells]

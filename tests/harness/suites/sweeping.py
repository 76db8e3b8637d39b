"""Runs sweeps of the toy family over an executor, and reads the cells that they store."""

from pathlib import Path

import run_sweep
import toy

from harness.measuring.environment import environment
from harness.measuring.request import Request
from harness.store.results import read_cells
from harness.suites.sweep import Finished, Site, Workers, resumed, sweep


def workers_of(executor, several: bool = False, at_once: int = 2) -> Workers:
    return Workers(Site(environment(0), several), executor, lambda: at_once)


def swept(path: Path, requests: list[Request], executor, several: bool = False) -> list[Finished]:
    workers = workers_of(executor, several)
    left = resumed(requests, path, run_sweep.SETTINGS, workers.site)
    return list(sweep(left, path, run_sweep.SETTINGS, registry=toy.toy_registry, workers=workers))


def ids(path: Path) -> list[str]:
    return [str(cell.id) for cell in read_cells(path)]


def expected() -> set[str]:
    return {f"toy/{name}@{each.problem}" for each in run_sweep.requests() for name in each.names()}

"""Runs sweeps of the toy family over an executor, and reads the cells that they store."""

from pathlib import Path

import run_sweep
import toy

from harness.measuring.environment import environment
from harness.measuring.request import Request
from harness.store.cells import CellStore, read_cells
from harness.suites.sweep import Finished, Workers, resumed, sweep, tasks_of


def workers_of(executor, several: bool = False, at_once: int = 2) -> Workers:
    return Workers(environment(0), executor, lambda: at_once, several=several)


def left(path: Path, requests: list[Request], several: bool = False) -> list[Request]:
    return resumed(tasks_of(requests, run_sweep.SETTINGS, several), CellStore(path))


def swept(path: Path, requests: list[Request], executor, several: bool = False) -> list[Finished]:
    workers, store = workers_of(executor, several), CellStore(path)
    requests = left(path, requests, several)
    settings, registry = run_sweep.SETTINGS, toy.toy_registry
    return list(sweep(requests, store, settings, registry=registry, workers=workers))


def ids(path: Path) -> list[str]:
    return [str(cell.id) for cell in read_cells(path)]


def expected() -> set[str]:
    return {f"toy/{name}@{each.problem}" for each in run_sweep.requests() for name in each.names()}

"""Runs sweeps of the toy family, and reads the cells that they store."""

from pathlib import Path

import run_sweep
import toy

from harness.measuring.request import Request
from harness.store.cells import CellStore, read_cells
from harness.suites.sweep import Finished, resumed, sweep, tasks_of


def left(path: Path, requests: list[Request], several: bool = False) -> list[Request]:
    return resumed(tasks_of(requests, run_sweep.SETTINGS, several), CellStore(path))


def swept(path: Path, requests: list[Request], at_once: int = 2) -> list[Finished]:
    settings, registry = run_sweep.SETTINGS, toy.toy_registry
    requests, store = left(path, requests), CellStore(path)
    return list(sweep(requests, store, settings, registry=registry, at_once=at_once))


def ids(path: Path) -> list[str]:
    return [str(cell.id) for cell in read_cells(path)]


def expected() -> set[str]:
    return {f"toy/{name}@{each.problem}" for each in run_sweep.requests() for name in each.names()}

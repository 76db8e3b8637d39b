"""A sweep that is killed at any moment and resumed has the results of an uninterrupted sweep."""

import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import run_sweep
import toy
import toy_registries

from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.ids import WorkloadSpec
from harness.store.cells import read_cells
from harness.topologies.lookup import find_topology

SCRIPT = Path(run_sweep.__file__)
PATHS = os.pathsep.join(map(str, (SCRIPT.parent, SCRIPT.parents[2])))
DETERMINISTIC = ("status", "decision", "against", "fingerprint", "quality", "counters", "reason")


def start(path: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": PATHS, "SWEEP": str(path)}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(path)], stderr=subprocess.PIPE, env=environment
    )


def run_to_the_end(path: Path) -> None:
    process = start(path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()


def fields(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in DETERMINISTIC}


def told(path: Path) -> dict[str, dict[str, Any]]:
    """Return the deterministic fields of each stored cell; each must be stored once."""
    run_sweep.assert_whole(path)
    cells = list(read_cells(path))
    for cell in cells:
        assert cell.environment.code
        compared = cell.decision in ("same", "own") and cell.status == "ok"
        assert (cell.ratio is not None) == compared
    return {str(cell.id): fields(cell) for cell in cells}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("undisturbed") / "results.jsonl"
    run_to_the_end(path)
    return told(path)


def left_over(path: Path) -> list[psutil.Process]:
    """Return the running processes that a sweep started, found by an environment variable."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SWEEP") == str(path):
                found.append(process)
        except psutil.Error:
            continue
    return found


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_at_random_moments_it_goes_on(tmp_path, undisturbed):
    """A moment is during the start, or shortly after a random number of further lines."""
    path, moments, hits = tmp_path / "results.jsonl", random.Random(1), 0
    for number in range(3):
        process = start(path)
        if number % 3:
            wanted = lines_of(path) + moments.randint(0, len(undisturbed) // 2)
            while process.poll() is None and lines_of(path) < wanted:
                time.sleep(0.002)
        try:
            process.communicate(timeout=moments.uniform(0.0, 0.2 if number % 3 else 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            hits += 1
        else:
            assert process.returncode == 0
            path.unlink()  # it was complete: on with another one
    assert hits > 1, "too few were in time"
    run_to_the_end(path)
    assert told(path) == undisturbed
    until = time.monotonic() + 20
    while left := left_over(path):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def compare(*variants: str, against: str = "", settled=None, stored=()) -> list[Cell]:
    workload, topology = WorkloadSpec("toy", {"size": "4"}), find_topology("dgx_a100_80gb", 2)
    request = Request(toy.TOY, workload, topology, variants, against, stored=stored)
    comparison = Comparison(request, run_sweep.SETTINGS, toy_registries.toy_registry)
    return comparison.run(settled=settled or (lambda cell: None))


CHECKED = ("same", "missing", "own", "raises")


@pytest.mark.parametrize(
    ("variants", "against", "stored"),
    [
        *((run_sweep.VARIANTS, "", f"-{name}") for name in ("reference", "same", "own", "raises")),
        # `same` stands in for `aloof`, which makes no decision, also if only some are stored.
        (CHECKED, "aloof", "aloof"),
        (CHECKED, "aloof", "aloof missing same"),
        (CHECKED, "aloof", "aloof raises"),
        (("same-as-different", "different"), "own", "different"),
        (("own",), "raises", "raises"),
    ],
)
def test_what_is_missing_is_judged_as_with_the_stored_cells(variants, against, stored):
    """A resumed comparison gives the rest of the same cells."""
    known = whole(variants, against)
    names = set(known) - {stored[1:]} if stored.startswith("-") else set(stored.split())
    kept = tuple(cell for name, cell in known.items() if name in names)
    cells = compare(*variants, against=against, stored=kept)
    assert {cell.variant for cell in cells} == set(known) - names
    for cell in cells:
        assert fields(cell) == fields(known[cell.variant])


@cache
def whole(variants: tuple[str, ...], against: str) -> dict[str, Cell]:
    return {cell.variant: cell for cell in compare(*variants, against=against)}


def test_no_cell_is_given_out_before_it_is_known_who_stands_in():
    """The cell of the reference without a part comes first."""
    seen: list[tuple[str, str]] = []
    compare(
        *("same", "missing", "own"),
        against="aloof",
        settled=lambda cell: seen.append((cell.variant, cell.against)),
    )
    assert seen[0][0] == "aloof", "a later run must find it first"
    assert [against for _, against in seen] == ["same"] * 4

"""A sweep that is killed at any moment and resumed has the results of an uninterrupted sweep."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import run_sweep
import toy

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


def told(path: Path) -> dict[str, dict[str, Any]]:
    """Return the deterministic fields of each stored cell; no cell may be stored twice."""
    cells = list(read_cells(path))
    found = {str(cell.id): {name: getattr(cell, name) for name in DETERMINISTIC} for cell in cells}
    assert len(found) == len(cells), sorted(str(cell.id) for cell in cells)
    for cell in cells:
        assert cell.environment.code
        compared = cell.decision in ("same", "own") and cell.status == "ok"
        assert (cell.ratio is not None) == compared
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("undisturbed") / "results.jsonl"
    process = start(path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    found = told(path)
    assert len(found) == len(run_sweep.SIZES) * (len(run_sweep.VARIANTS) + 1) - 1
    return found


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


def killed_and_resumed(path: Path, kills: int, seed: int, cells: int) -> int:
    """Kill a sweep up to `kills` times at random moments, then let it end; return the kills made.

    A moment is either during the start, or shortly after a random number of further lines, so that
    a busy machine makes as much progress between kills as an idle one.
    """
    moments = random.Random(seed)
    hits = 0
    for number in range(kills):
        process = start(path)
        if number % 3:
            wanted = lines_of(path) + moments.randint(0, cells // 2)
            while process.poll() is None and lines_of(path) < wanted:
                time.sleep(0.002)
        pause = moments.uniform(0.0, 0.2 if number % 3 else 1.0)
        try:
            process.communicate(timeout=pause)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            hits += 1
        else:
            assert process.returncode == 0
            path.unlink()  # it was complete: on with another one
    process = start(path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    return hits


def check_killed(path: Path, undisturbed: dict[str, dict[str, Any]], kills: int, seed: int) -> None:
    hits = killed_and_resumed(path, kills, seed, len(undisturbed))
    assert hits > kills / 3, "too few kills came before the end"
    assert told(path) == undisturbed
    until = time.monotonic() + 20
    while left := left_over(path):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_killed_at_random_moments_it_goes_on(tmp_path: Path, undisturbed):
    check_killed(tmp_path / "results.jsonl", undisturbed, 6, seed=1)


def test_what_is_final_is_stored_before_the_rest_is_timed(tmp_path: Path):
    cells: list[tuple[str, str]] = []
    returned = compare(
        "same", "raises", "missing", "different", settled=lambda each: cells.append(at(each))
    )
    assert [name for name, _ in cells[:2]] == ["raises", "missing"]
    assert cells[2] == ("different", "ok")
    assert sorted(cells) == sorted(map(at, returned))
    assert [cell.variant for cell in returned] == [
        *("reference", "same", "different", "raises", "missing")
    ], "in the order they are registered"


def at(cell: Cell) -> tuple[str, str]:
    assert cell.environment.code, "a cell that is given out says where it is from"
    return cell.variant, cell.status


def compare(*variants: str, against: str = "", settled=None, stored=()) -> list[Cell]:
    workload, topology = WorkloadSpec("toy", {"size": "4"}), find_topology("dgx_a100_80gb", 2)
    request = Request(toy.TOY, workload, topology, variants, against, stored=stored)
    comparison = Comparison(request, run_sweep.SETTINGS, toy.toy_registry)
    return comparison.run(settled=settled or (lambda cell: None))


@pytest.fixture(scope="module")
def whole() -> dict[str, Cell]:
    return {cell.variant: cell for cell in compare(*run_sweep.VARIANTS)}


@pytest.fixture(scope="module")
def without_reference() -> dict[str, Cell]:
    cells = compare("same", "missing", "own", "raises", against="aloof")
    return {cell.variant: cell for cell in cells}


class TestGoingOn:
    """Stored cells are used and not measured again."""

    @staticmethod
    def stored(cells: dict[str, Cell], *names: str) -> tuple[Cell, ...]:
        return tuple(cells[name] for name in names)

    @pytest.mark.parametrize("missing", ["reference", *run_sweep.VARIANTS])
    def test_each_one_is_judged_as_with_the_others(self, whole, missing: str):
        stored = self.stored(whole, *(name for name in whole if name != missing))
        (cell,) = compare(*run_sweep.VARIANTS, stored=stored)
        for name in DETERMINISTIC:
            assert getattr(cell, name) == getattr(whole[missing], name), name

    @pytest.mark.parametrize("kept", [["aloof"], ["aloof", "missing", "same"], ["aloof", "raises"]])
    def test_the_one_that_stood_in_goes_on_doing_so(self, without_reference, kept: list[str]):
        assert {cell.against for cell in without_reference.values()} == {"same"}
        stored = self.stored(without_reference, *kept)
        cells = compare("same", "missing", "own", "raises", against="aloof", stored=stored)
        assert {cell.variant for cell in cells} == set(without_reference) - set(kept)
        for cell in cells:
            assert cell.against == "same"
            assert cell.decision == without_reference[cell.variant].decision

    def test_no_cell_is_given_out_before_it_is_known_who_stands_in(self):
        seen: list[tuple[str, str]] = []

        def settled(cell: Cell) -> None:
            seen.append((cell.variant, cell.against))

        compare("same", "missing", "own", against="aloof", settled=settled)
        assert seen[0][0] == "aloof", "a later run must find it first"
        assert [against for _, against in seen] == ["same"] * 4

    def test_one_that_must_decide_as_a_stored_one_is_held_to_it(self):
        whole = {c.variant: c for c in compare("same-as-different", "different", against="own")}
        stored = self.stored(whole, "different")
        for cell in compare("same-as-different", "different", against="own", stored=stored):
            assert cell.decision == whole[cell.variant].decision

    def test_a_failed_one_to_compare_with_is_not_run_again(self, tmp_path: Path):
        first = {cell.variant: cell for cell in compare("own", against="raises")}
        stored = self.stored(first, "raises")
        (cell,) = compare("own", against="raises", stored=stored)
        assert (cell.variant, cell.status, cell.ratio) == ("own", "ok", None)


LIMITED = """
import resource, sys
import run_sweep
from harness.model.errors import ShardbenchError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    run_sweep.main(sys.argv[1])
except ShardbenchError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_ends_in_one_sentence_and_keeps_what_is_there(tmp_path: Path, undisturbed):
    path = tmp_path / "results.jsonl"
    environment = os.environ | {"PYTHONPATH": PATHS}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), "9000"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == f"Results cannot be written to {path}: File too large."
    before = told(path)
    assert 0 < len(before) < len(undisturbed)
    process = start(path)
    assert process.wait(timeout=120) == 0
    process.communicate()
    assert told(path) == undisturbed

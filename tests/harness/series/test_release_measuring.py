from pathlib import Path

import pytest
from toy_library import LIBRARY, PROBLEM, declared, family, write_installed

from harness.contract import Series
from harness.model.cell import Cell
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.series.installing import Place
from harness.series.points import Point, Run
from harness.series.running import measure_releases, settings_of
from harness.store.cells import CellStore
from harness.topologies.lookup import find_topology

SETTINGS = settings_of(turns=3, seconds=60, budget=60)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Place]:
    """Three installed releases."""
    folder = tmp_path_factory.mktemp("releases")
    kinds = {"1.0.0": (1, 0), "2.0.0": (10, 4), "3.0.0": (1, 4)}
    return [Place(name, write_installed(folder, name, *kind)) for name, kind in kinds.items()]


@pytest.fixture
def library(tmp_path: Path) -> Series:
    return declared(tmp_path)


def measured(
    library: Series, places: list[Place], settings: Settings = SETTINGS
) -> dict[str, Cell]:
    problem = ProblemId.parse(PROBLEM)
    topology = find_topology(problem.topology, problem.gpus)
    store = CellStore(library.driver.parent / "history.jsonl")
    what = (library, family(library), problem, topology, places, settings, store)
    return {cell.variant: cell for cell in measure_releases(*what)}


def calls_of(cell: Cell) -> dict[str, int]:
    return Run(Point(cell.variant), cell).calls("enumerate")


def test_each_release_is_counted_timed_in_turns_and_compared_with_the_oldest(
    library: Series, places: list[Place]
) -> None:
    cells = measured(library, places[::-1])
    one, two = calls_of(cells["1.0.0"]), calls_of(cells["2.0.0"])
    # Each look makes two calls: of `look`, and of `dir`, which asks the number for its own.
    assert two["planning.look"] == 10 * one["planning.look"]
    assert (one["planning.plan"], two["planning.plan"]) == (3 + 6, 30 + 6)
    assert [cell.counters["copies"] for cell in cells.values()] == [0, 4, 4]
    assert {cell.fingerprint for cell in cells.values()} == {"[0, 1, 2]"}
    assert {cell.against for cell in cells.values()} == {"1.0.0"}
    assert cells["2.0.0"].ratio is not None
    assert all(cell.phases == {"enumerate": 0.25, "other": 0.5} for cell in cells.values())
    # Three turns are rounded up to two pairs.
    assert {len(cell.cpu_s.samples) for cell in cells.values() if cell.cpu_s} == {4}
    assert LIBRARY not in cells["1.0.0"].environment.packages


def test_a_new_release_is_measured_beside_those_that_are_stored(
    library: Series, places: list[Place]
) -> None:
    """If it is the oldest, all are compared with it from then on."""
    settings = settings_of(turns=50, seconds=1e-6, budget=60)
    first = measured(library, places[1:2], settings)
    both = measured(library, places[1:], settings)
    assert both["2.0.0"] == first["2.0.0"]
    assert (both["3.0.0"].against, both["3.0.0"].ratio is not None) == ("2.0.0", True)
    assert measured(library, places[1:], settings) == both
    cells = measured(library, places, settings)
    assert {cell.against for cell in cells.values()} == {"1.0.0"}
    # Turns end with the time, but an interval needs four.
    assert {len(cell.cpu_s.samples) for cell in cells.values() if cell.cpu_s} == {4}


BROKEN = {
    "0.5.0": ("raise ImportError('needs CUDA')", "needs CUDA"),
    "7.0.0": ("import os; os._exit(3)", "ended with exit code 3"),
    "8.0.0": ("COPIES = -1; __file__ = '/elsewhere'", "It was not imported, but /elsewhere"),
    "9.0.0": ("import time; time.sleep(60)", "stopped after 3 s"),
}


def test_releases_that_cannot_run_say_why_are_tried_again_and_the_others_go_on(
    library: Series, places: list[Place], tmp_path: Path
) -> None:
    """A release that is not there, or fails, is no reference."""
    gone = Place("0.1.0", missing="It is gone.")
    broken = [
        Place(name, write_installed(tmp_path, name, source=source))
        for name, (source, _) in BROKEN.items()
    ]
    settings = settings_of(turns=2, seconds=60, budget=3)
    first = measured(library, [gone, *places[:2], *broken], settings)
    assert first["0.1.0"].reason == "It is gone."
    for name, (_, reason) in BROKEN.items():
        assert reason in (first[name].reason or "")
    write_installed(tmp_path, "0.5.0")
    again = measured(library, [*places[:2], broken[0]], settings)
    for name in ("1.0.0", "2.0.0"):
        assert (again[name].cpu_s, again[name].status) == (first[name].cpu_s, "ok")
    assert again["0.5.0"].status == "ok"

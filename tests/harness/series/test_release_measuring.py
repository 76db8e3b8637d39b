from pathlib import Path

import pytest
from toy_library import LIBRARY, PROBLEM, declared, family, write_installed

from harness.contract import Series
from harness.model.cell import Cell
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.series.installing import Place, install
from harness.series.points import Point, Run
from harness.series.running import measure_releases, settings_of
from harness.store.cells import CellStore, read_cells
from harness.topologies.lookup import find_topology

SETTINGS = settings_of(turns=3, seconds=60, budget=60)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Place]:
    """Three installed releases."""
    folder = tmp_path_factory.mktemp("releases")
    for release, scans, copies in (("1.0.0", 1, 0), ("2.0.0", 10, 4), ("3.0.0", 1, 4)):
        write_installed(folder, release, scans, copies)
    return [install(LIBRARY, release, folder) for release in ("1.0.0", "2.0.0", "3.0.0")]


@pytest.fixture
def library(tmp_path: Path) -> Series:
    return declared(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def measured(
    library: Series, places: list[Place], path: Path, settings: Settings = SETTINGS
) -> dict[str, Cell]:
    problem = ProblemId.parse(PROBLEM)
    topology = find_topology(problem.topology, problem.gpus)
    what = (library, family(library), problem, topology, places, settings, CellStore(path))
    return {cell.variant: cell for cell in measure_releases(*what)}


def calls_of(cell: Cell) -> dict[str, int]:
    return Run(Point(cell.variant), cell).calls("enumerate")


def broken(tmp_path: Path, source: str, release: str = "9.0.0") -> Place:
    write_installed(tmp_path / "releases", release, source=source)
    return install(LIBRARY, release, tmp_path / "releases")


def test_each_release_is_counted_timed_in_turns_and_compared_with_the_oldest(
    library: Series, places: list[Place], path: Path
) -> None:
    cells = measured(library, places[::-1], path)
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


def test_stored_releases_are_not_measured_again_and_a_killed_run_goes_on(
    library: Series, places: list[Place], path: Path
) -> None:
    first = measured(library, places, path)
    content = path.read_bytes()
    assert measured(library, places, path) == first
    assert path.read_bytes() == content
    lines = content.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:100])
    again = measured(library, places, path)
    assert again["1.0.0"] == first["1.0.0"]
    assert [calls_of(cell) for cell in again.values()] == [calls_of(x) for x in first.values()]
    assert [cell.variant for cell in read_cells(path)] == list(again)


def test_a_new_release_is_measured_beside_those_that_are_stored(
    library: Series, places: list[Place], path: Path
) -> None:
    """If it is the oldest, all are compared with it from then on."""
    settings = settings_of(turns=50, seconds=1e-6, budget=60)
    first = measured(library, places[1:2], path, settings)
    both = measured(library, places[1:], path, settings)
    assert both["2.0.0"] == first["2.0.0"]
    assert (both["3.0.0"].against, both["3.0.0"].ratio is not None) == ("2.0.0", True)
    cells = measured(library, places, path, settings)
    assert {cell.against for cell in cells.values()} == {"1.0.0"}
    # Turns end with the time, but an interval needs four.
    assert {len(cell.cpu_s.samples) for cell in cells.values() if cell.cpu_s} == {4}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os._exit(3)", "ended with exit code 3"),
        ("COPIES = -1; __file__ = '/elsewhere'", "It was not imported, but /elsewhere"),
        ("import time; time.sleep(60)", "stopped after 3 s"),
    ],
)
def test_a_release_that_cannot_run_says_why_and_the_others_go_on(
    library: Series, places: list[Place], path: Path, tmp_path: Path, source: str, reason: str
) -> None:
    given = [*places[:1], broken(tmp_path, source)]
    cells = measured(library, given, path, settings_of(turns=2, seconds=60, budget=3))
    assert cells["9.0.0"].status in ("failed", "over budget")
    assert reason in (cells["9.0.0"].reason or "")
    assert {cell.variant for cell in read_cells(path)} == {"1.0.0"}


def test_where_the_oldest_fails_the_others_are_measured_and_it_is_tried_again(
    library: Series, places: list[Place], path: Path, tmp_path: Path
) -> None:
    """A release that is not there is no reference, either."""
    needs_cuda = broken(tmp_path, "raise ImportError('needs CUDA')", "0.5.0")
    given = [Place("0.1.0", missing="It is gone."), needs_cuda, *places[:2]]
    first, again = (measured(library, given, path) for _ in range(2))
    assert [cell.status for cell in first.values()] == ["failed", "failed", "ok", "ok"]
    assert first["0.1.0"].reason == "It is gone."
    assert all(again[name] == first[name] for name in ("1.0.0", "2.0.0"))
    assert "needs CUDA" in (again["0.5.0"].reason or "")

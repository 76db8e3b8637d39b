import os
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_library import LIBRARY, PROBLEM, declared, write_installed

from harness.contract import Series
from harness.contract.calls import count_calls
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.series.installing import Place, install
from harness.series.points import Point, Run
from harness.series.releases import family_of, measure, settings_of
from harness.store.cells import CellStore, read_cells
from harness.topologies.lookup import find_topology

SETTINGS = settings_of(turns=3, seconds=60, budget=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which three releases are installed."""
    folder = tmp_path_factory.mktemp("releases")
    for release, scans, copies in (("1.0.0", 1, 0), ("2.0.0", 10, 4), ("3.0.0", 1, 4)):
        write_installed(folder, release, scans, copies)
    return folder


@pytest.fixture
def places(folder: Path) -> list[Place]:
    return [install(LIBRARY, release, folder) for release in ("1.0.0", "2.0.0", "3.0.0")]


@pytest.fixture
def library(tmp_path: Path) -> Series:
    return declared(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def measured(
    library: Series,
    places: list[Place],
    path: Path,
    settings: Settings = SETTINGS,
) -> dict[str, Cell]:
    family = family_of(library, places)
    problem = ProblemId.parse(PROBLEM)
    topology = find_topology(problem.topology, problem.gpus)
    request = Request(family, problem.workload, topology)
    store = CellStore(path)
    return {each.variant: each for each in measure(request, library, places, settings, store)}


def calls_of(cell: Cell) -> dict[str, int]:
    return Run(Point(cell.variant), cell).calls("enumerate")


def broken(tmp_path: Path, source: str, release: str = "9.0.0") -> Place:
    write_installed(tmp_path / "releases", release, source=source)
    return install(LIBRARY, release, tmp_path / "releases")


def test_each_release_is_counted_timed_in_turns_and_compared_with_the_oldest(
    library: Series, places: list[Place], path: Path
) -> None:
    found = measured(library, places[::-1], path)
    one, two = calls_of(found["1.0.0"]), calls_of(found["2.0.0"])
    # Each look makes two calls: of `look`, and of `dir`, which asks the number for its own.
    assert two["planning.look"] == 10 * one["planning.look"]
    assert (one["planning.plan"], two["planning.plan"]) == (3 + 6, 30 + 6)
    assert [cell.counters["copies"] for cell in found.values()] == [0, 4, 4]
    assert {cell.fingerprint for cell in found.values()} == {"[0, 1, 2]"}
    assert {cell.against for cell in found.values()} == {"1.0.0"}
    assert found["2.0.0"].ratio is not None
    assert all(cell.phases == {"enumerate": 0.25, "other": 0.5} for cell in found.values())
    # Three turns are rounded up to two pairs.
    assert {len(cell.cpu_s.samples) for cell in found.values() if cell.cpu_s} == {4}
    assert LIBRARY not in found["1.0.0"].environment.packages


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
    assert [calls_of(each) for each in again.values()] == [calls_of(x) for x in first.values()]
    assert [cell.variant for cell in read_cells(path)] == list(again)


def test_a_new_release_is_measured_beside_those_that_are_stored(
    library: Series, places: list[Place], path: Path
) -> None:
    """If it is the oldest, all are compared with it from then on."""
    first = measured(library, places[1:2], path)
    both = measured(library, places[1:], path)
    assert both["2.0.0"] == first["2.0.0"]
    assert (both["3.0.0"].against, both["3.0.0"].ratio is not None) == ("2.0.0", True)
    found = measured(library, places, path)
    assert {cell.against for cell in found.values()} == {"1.0.0"}
    assert measured(library, places, path) == found


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('needs CUDA')", "ImportError: needs CUDA"),
        ("import os; os._exit(3)", "ended with exit code 3"),
        ("COPIES = -1; __file__ = '/elsewhere'", "It was not imported, but /elsewhere"),
        ("import time; time.sleep(60)", "stopped after 3 s"),
    ],
)
def test_a_release_that_cannot_run_says_why_and_the_others_go_on(
    library: Series, places: list[Place], path: Path, tmp_path: Path, source: str, reason: str
) -> None:
    given = [*places[:2], broken(tmp_path, source)]
    found = measured(library, given, path, settings_of(turns=2, seconds=60, budget=3))
    assert found["9.0.0"].status in ("failed", "over budget")
    assert reason in (found["9.0.0"].reason or "")
    assert [found[each].status for each in ("1.0.0", "2.0.0")] == ["ok", "ok"]
    assert {cell.variant for cell in read_cells(path)} == {"1.0.0", "2.0.0"}


def test_where_the_oldest_fails_the_others_are_measured_and_it_is_tried_again(
    library: Series, places: list[Place], path: Path, tmp_path: Path
) -> None:
    """A release that is not there is no reference, either."""
    needs_cuda = broken(tmp_path, "raise ImportError('needs CUDA')", "0.5.0")
    given = [Place("0.1.0", missing="It is gone."), needs_cuda, *places[:2]]
    found = measured(library, given, path)
    assert [cell.status for cell in found.values()] == ["failed", "failed", "ok", "ok"]
    assert found["0.1.0"].reason == "It is gone."
    assert all(cell.cpu_s and cell.counters for cell in found.values() if cell.status == "ok")
    again = measured(library, given, path)
    assert {name: again[name] for name in ("1.0.0", "2.0.0")} == {
        name: found[name] for name in ("1.0.0", "2.0.0")
    }
    assert "needs CUDA" in (again["0.5.0"].reason or "")


def test_turns_end_with_the_time_but_four_are_taken(
    library: Series, places: list[Place], path: Path
) -> None:
    """An interval needs four."""
    found = measured(library, places[:2], path, settings_of(turns=50, seconds=1e-6, budget=60))
    assert [len(cell.cpu_s.samples) for cell in found.values() if cell.cpu_s] == [4, 4]


def recursive(depth: int) -> int:
    return recursive(depth - 1) if depth else 0


def looping(times: int) -> None:
    for _ in range(times):
        len("x")


def failing() -> None:
    os.getpid()
    raise ValueError


@pytest.mark.parametrize(("function", "made"), [(recursive, 5), (looping, 7)])
def test_calls_are_counted_by_who_makes_them(function: Callable[[int], object], made: int) -> None:
    _, calls = count_calls(lambda: function(made))
    name = f"{Path(__file__).stem}.{function.__name__}"
    assert calls[name] == made
    assert sum(calls.values()) == made + 1
    assert count_calls(lambda: function(made))[1] == calls


def test_counting_ends_where_the_function_raises() -> None:
    with pytest.raises(ValueError):
        count_calls(failing)
    assert count_calls(lambda: 3)[0] == 3

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_releases import DRIVER, LIBRARY, declared, write_wheel

from harness.contract.calls import count_calls
from harness.contract.releases import Releases
from harness.model.ids import ProblemId
from harness.releases.installing import Place, install, kept_releases
from harness.releases.variants import environment_of
from harness.topologies.lookup import find_topology

PROBLEM = "toy[size=3]/dgx_a100_80gb:8"
RULE = Rule(repeat=3, seconds=60, budget=60)


def installed(release: str, folder: Path, wheels: Path) -> Place:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PIP_NO_INDEX", "1")
        environment.setenv("PIP_FIND_LINKS", str(wheels))
        return install(LIBRARY, release, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two releases are installed."""
    wheels, folder = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("releases")
    write_wheel(wheels, "1.0.0", scans=1)
    write_wheel(wheels, "2.0.0", scans=10, copies=4)
    for release in ("1.0.0", "2.0.0"):
        installed(release, folder, wheels)
    return folder


@pytest.fixture
def places(folder: Path) -> list[Place]:
    return [install(LIBRARY, release, folder) for release in ("1.0.0", "2.0.0")]


@pytest.fixture
def library(tmp_path: Path) -> Releases:
    return declared(tmp_path)


def asked(problem: str = PROBLEM) -> Asked:
    found = ProblemId.parse(problem)
    return Asked(found, str(found.workload), find_topology(found.topology, found.gpus))


def measured(library: Releases, places: list[Place], path: Path, rule: Rule = RULE) -> History:
    history = read_history(path, library.library, environment_of(library))
    with Measuring(library, history, rule, lambda text: None) as measuring:
        measuring.measure(asked(), places)
    return history


def test_each_release_is_counted_once_and_timed_in_turns(
    library: Releases, places: list[Place], tmp_path: Path
) -> None:
    history = measured(library, places, tmp_path / "history.jsonl")
    one, two = (history.counts[PROBLEM, each] for each in ("1.0.0", "2.0.0"))
    # Each look makes two calls: of `look`, and of `dir`, which asks the number for its own.
    assert two.calls["toylib.look"] == 10 * one.calls["toylib.look"]
    assert one.calls["toylib.enumerate_options"] == 3
    assert two.calls["toylib.enumerate_options"] == 30
    assert (one.counters, two.counters) == ({"copies": 0}, {"copies": 4})
    assert [set(each.times) for each in history.rounds] == [{"1.0.0", "2.0.0"}] * 3
    orders = [list(each.times) for each in history.rounds]
    assert orders == [["1.0.0", "2.0.0"], ["2.0.0", "1.0.0"], ["1.0.0", "2.0.0"]]


def test_what_was_measured_is_read_again_and_not_measured_again(
    library: Releases, places: list[Place], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    first = measured(library, places, path)
    content = path.read_bytes()
    again = measured(library, places, path)
    assert path.read_bytes() == content
    assert again.counts == first.counts
    assert again.rounds == first.rounds


def test_a_history_that_was_cut_short_is_gone_on_with(
    library: Releases, places: list[Place], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    whole = measured(library, places, path)
    content = path.read_bytes()
    for length in (10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        damaged: list[str] = []
        kept = read_history(path, LIBRARY, environment_of(library), damaged.append)
        assert len(damaged) == (content[:length].count(b"\n") < 5 and length < len(content) - 1)
        again = measured(library, places, path)
        assert again.counts == whole.counts
        assert len(again.rounds) == 3
        assert again.rounds[: len(kept.rounds)] == kept.rounds


def test_another_release_makes_new_rounds_with_all_of_them(
    library: Releases, places: list[Place], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    measured(library, places[:1], path)
    history = measured(library, places, path)
    assert [set(each.times) for each in history.rounds] == [{"1.0.0"}] * 3 + [
        {"1.0.0", "2.0.0"}
    ] * 3
    assert len(measured(library, places[1:], path).rounds) == 6


def test_lines_of_another_environment_are_left_alone(
    library: Releases, places: list[Place], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    measured(library, places, path)
    library.driver.write_text(DRIVER + "\n# changed\n")
    history = read_history(path, LIBRARY, environment_of(library))
    assert (history.counts, history.rounds) == ({}, [])
    assert read_history(path, "other", environment_of(library)).rounds == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('needs CUDA')", "raised ImportError: needs CUDA"),
        ("import os; os._exit(3)", "ended with exit code 3"),
        ("RELEASE = '7.0.0'\nCOPIES = 0\ndef enumerate_options(n): return []", "holds 7.0.0"),
        ("RELEASE = '9.0.0'\nCOPIES = -1\ndef enumerate_options(n): return []", "whole numbers"),
        ("RELEASE = '9.0.0'\nimport time\ndef enumerate_options(n): time.sleep(60)", "within 2 s"),
    ],
)
def test_a_release_that_cannot_run_says_why_and_the_others_go_on(
    library: Releases,
    places: list[Place],
    tmp_path: Path,
    source: str,
    reason: str,
) -> None:
    write_wheel(tmp_path / "wheels", "9.0.0", source=source)
    broken = installed("9.0.0", tmp_path / "releases", tmp_path / "wheels")
    rule = Rule(repeat=2, seconds=60, budget=2)
    history = measured(library, [*places, broken], tmp_path / "history.jsonl", rule)
    found = history.not_run[PROBLEM, "9.0.0"]
    assert isinstance(found, NotRun)
    assert reason in found.reason
    assert found.reason.endswith(".")
    assert [set(each.times) for each in history.rounds] == [{"1.0.0", "2.0.0"}] * 2


def test_rounds_end_with_the_time_but_two_are_made(
    library: Releases, places: list[Place], tmp_path: Path
) -> None:
    rule = Rule(repeat=50, seconds=1e-6, budget=60)
    assert len(measured(library, places, tmp_path / "history.jsonl", rule).rounds) == 2


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"schema": 2}',
        '{"schema": 1, "library": "toylib"}',
        '{"schema": 1, "library": 3, "environment": {}}',
    ],
)
def test_a_damaged_line_is_told_and_left_out(
    library: Releases, places: list[Place], tmp_path: Path, line: str
) -> None:
    path = tmp_path / "history.jsonl"
    first = measured(library, places, path)
    path.write_text(f"{line}\n{path.read_text()}")
    damaged: list[str] = []
    history = read_history(path, LIBRARY, environment_of(library), damaged.append)
    assert history.rounds == first.rounds
    assert len(damaged) == 1
    assert damaged[0].startswith(f"{path}, line 1: it ")


@pytest.mark.parametrize("field", ["counters", "fingerprint", "calls", "quality"])
@pytest.mark.parametrize("value", [None, 3, ["x"], {"x": "y"}, {"x": True}])
def test_a_wrong_type_inside_a_line_is_damage(
    library: Releases, tmp_path: Path, field: str, value: object
) -> None:
    path = tmp_path / "history.jsonl"
    environment = environment_of(library)
    right = {"counters": {}, "fingerprint": "f", "calls": {}, "quality": {}}
    line = {"schema": 1, "kind": "counts", "library": LIBRARY, "problem": PROBLEM, "release": "1"}
    line |= {**right, field: value, "environment": environment}
    path.write_text(json.dumps(line) + "\n")
    damaged: list[str] = []
    assert read_history(path, LIBRARY, environment, damaged.append).counts == {}
    assert f"must have '{field}' as" in damaged[0]


def test_the_folder_tells_which_releases_it_has(places: list[Place], folder: Path) -> None:
    (folder / "other-1.0.0").mkdir()
    assert sorted(kept_releases(LIBRARY, folder)) == ["1.0.0", "2.0.0"]
    assert kept_releases(LIBRARY, folder / "none") == []


def recursive(depth: int) -> int:
    return recursive(depth - 1) if depth else 0


def failing() -> None:
    os.getpid()
    raise ValueError


@pytest.mark.parametrize(
    ("function", "made"),
    [
        (lambda: recursive(5), {"recursive": 5, "<lambda>": 1}),
        (lambda: [len("x") for _ in range(7)], {"<listcomp>": 7, "<lambda>": 1}),
    ],
)
def test_calls_are_counted_by_who_makes_them(
    function: Callable[[], object], made: dict[str, int]
) -> None:
    _, calls = count_calls(function)
    found: dict[str, int] = {}
    for name, count in calls.items():
        last = name.rpartition(".")[2]
        found[last] = found.get(last, 0) + count
    assert {name: found.get(name) for name in made} == made
    assert count_calls(function)[1] == calls


def test_counting_ends_where_the_function_raises() -> None:
    with pytest.raises(ValueError):
        count_calls(failing)
    assert count_calls(lambda: 3)[0] == 3

"""`shardbench releases` and `shardbench history` on releases and commits of a toy library."""

import csv
import platform
import re
from pathlib import Path

import pytest
from toy_library import (
    DRIVER,
    PROBLEM,
    ToyRepository,
    declared,
    family,
    write_installed,
    write_wheel,
)

from harness.contract import Series
from harness.contract.registry import Registry
from harness.measuring.environment import MACHINE
from harness.model.cell import Cell
from harness.series.points import Point, Run
from harness.store.cells import read_cells

ALL = ("1.0.0", "1.5.0", "2.0.0")
KINDS = dict(zip(ALL, ((1, 0), (1, 4), (10, 4)), strict=True))
"""How often each release looks, and how many copies it makes."""
INSTALLED = Path("upstreams", "releases")
ONE = ("-p", PROBLEM)


def keep(*releases: str) -> None:
    """Write releases of the toy library to the place where installed releases are."""
    for release in releases:
        write_installed(INSTALLED, release, *KINDS[release])


def measured() -> dict[str, Cell]:
    """Return the last cell of each release of one problem."""
    cells = read_cells(Path("history/history.jsonl"))
    return {cell.variant: cell for cell in cells if str(cell.id).endswith(PROBLEM)}


def stored(folder: str = "history/toylib") -> list[dict]:
    return [cell.record() for cell in read_cells(Path(folder, "history.jsonl"))]


def rows(folder: str = "history/toylib") -> list[dict[str, str]]:
    with Path(folder, "history.csv").open() as file:
        return list(csv.DictReader(file))


def declare(monkeypatch, series: Series) -> None:
    """Make `releases` and `history` find this library."""
    registry = Registry([family(series)])
    monkeypatch.setattr("shardbench.commands.series.found_registry", lambda: registry)


@pytest.fixture(autouse=True)
def _toy_library(monkeypatch, tmp_path):
    declare(monkeypatch, declared(tmp_path))


@pytest.fixture
def releases(shardbench, monkeypatch, tmp_path):
    """Return a function that runs `shardbench releases`, with a folder of wheels as the index."""
    for release, kind in KINDS.items():
        write_wheel(tmp_path / "wheels", release, *kind)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return lambda *arguments: shardbench("releases", "toylib", "--repeat", "2", *arguments)


@pytest.fixture
def history(shardbench):
    return lambda *arguments: shardbench("history", "toylib", "-r", "clone", *arguments)


@pytest.fixture
def repository(tmp_path):
    return ToyRepository(tmp_path / "clone")


def test_a_range_is_installed_measured_in_turns_compared_and_drawn(releases, tmp_path):
    """Each release has counts, times, a decision and a ratio to the oldest."""
    keep("1.0.0", "2.0.0")
    code, out, _ = releases("1.0.0..2.0.0", "--repeat", "3")
    assert code == 0
    table = [line.split()[0] for line in out.splitlines() if line.startswith(ALL)]
    assert table[:3] == list(ALL)
    assert "2.0.0: enumerate makes" in out
    assert "planning.look" in out
    assert "All 3 releases make the same decision." in out
    assert sorted(each.name for each in (tmp_path / "history").iterdir()) == [
        *("history.csv", "history.jsonl", "history.svg", "index.html")
    ]
    assert [row["release"] for row in rows("history")] == [*ALL, *ALL]
    assert (tmp_path / "upstreams" / "releases" / "toylib-1.5.0").is_dir()

    cells = measured()
    one, two = (Run(Point(name), cells[name]).calls("enumerate") for name in ("1.0.0", "2.0.0"))
    # Each look makes two calls: of `look`, and of `dir`, which asks the number for its own.
    assert two["planning.look"] == 10 * one["planning.look"]
    assert (one["planning.plan"], two["planning.plan"]) == (3 + 6, 30 + 6)
    assert [cells[name].counters["copies"] for name in ALL] == [0, 4, 4]
    for cell in cells.values():
        assert (cell.against, cell.fingerprint) == ("1.0.0", "[0, 1, 2]")
        assert (cell.ratio is None) == (cell.variant == "1.0.0")
        assert cell.phases == {"enumerate": 0.25, "other": 0.5}
        assert len(cell.cpu_s.samples) == 4, "three turns are rounded up to two pairs"
        assert "toylib" not in cell.environment.packages


def test_a_new_release_is_measured_beside_those_that_are_stored(releases):
    """If it is the oldest, all are compared with it from then on."""
    keep(*ALL)
    # Turns end with the time, but an interval needs four.
    options = (*ONE, "--repeat", "50", "--seconds", "1e-6")
    releases("1.5.0", *options)
    first = measured()
    releases("1.5.0", "2.0.0", *options)
    both = measured()
    assert both["1.5.0"] == first["1.5.0"]
    assert (both["2.0.0"].against, both["2.0.0"].ratio is not None) == ("1.5.0", True)
    before = Path("history/history.jsonl").read_bytes()
    releases("1.5.0", "2.0.0", *options)
    assert Path("history/history.jsonl").read_bytes() == before
    releases(*ALL, *options)
    assert {cell.against for cell in measured().values()} == {"1.0.0"}
    assert {len(cell.cpu_s.samples) for cell in measured().values()} == {4}


BROKEN = {
    "0.5.0": ("raise ImportError('needs CUDA')", "needs CUDA"),
    "7.0.0": ("import os; os._exit(3)", "ended with exit code 3"),
    "8.0.0": ("COPIES = -1; __file__ = '/elsewhere'", "It was not imported, but /elsewhere"),
    "9.0.0": ("import time; time.sleep(60)", "stopped after 1 s"),
}


def test_releases_that_cannot_run_say_why_are_tried_again_and_the_others_go_on(
    releases, monkeypatch, tmp_path
):
    """A release that is not there, or fails, is no reference; only failures are one."""
    place = write_installed(Path("elsewhere"), "1.0.0")
    for name, (source, _) in BROKEN.items():
        write_installed(INSTALLED, name, source=source)
    options = ("--at", f"1.0.0={place}", *ONE)
    code, out, err = releases("0.1.0", *BROKEN, *options, "--budget", "1")
    assert code == 0
    assert "toylib 0.1.0 could not be installed: No matching distribution found" in err
    assert "\n1.0.0 " in out
    said = " ".join(out.split())
    for name, (_, reason) in BROKEN.items():
        assert reason in said, name
    assert list(measured()) == ["1.0.0"], "what failed is not stored"
    write_installed(INSTALLED, "7.0.0")
    releases("7.0.0", *options)
    assert list(measured()) == ["1.0.0", "7.0.0"]
    assert releases("0.5.0", *ONE)[0] == 1
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "none"))
    code, _, err = releases("7.0.0..7.5", *ONE)
    assert code == 0
    assert "A range has only the releases that are installed." in err


def test_a_history_names_the_commits_that_change_calls_and_plans(history, repository):
    """Commits that change neither are left out."""
    repository.version("the first")
    repository.version("a comment", steps=5)
    dearer = repository.version("Scan more (#41)", scans=9)
    other = repository.version("Plan otherwise", scans=9, plan=4)
    code, out, _ = history()
    assert code == 0
    assert re.search(rf"{dearer[:9]} +2026-01-02 +\d\.\d\d +same +Scan more \(#41\)", out)
    assert re.search(rf"{other[:9]} +2026-01-02 +1\.00 +other plan +Plan otherwise", out)
    assert "planning.look" in out
    assert [row["status"] for row in rows()] == ["ok"] * 3  # one touched nothing that decides


def test_stored_commits_are_not_run_again(history, repository, tmp_path, monkeypatch):
    """Counts of earlier code count if the driver says so."""
    repository.version("the first")
    repository.version("more", scans=9)
    first = history()
    content = Path("history/toylib/history.jsonl").read_bytes()
    second = history()
    assert Path("history/toylib/history.jsonl").read_bytes() == content
    assert first[:2] == second[:2]
    # A driver of other code, which is declared to count the same.
    series = declared(tmp_path, earlier=tuple({cell["environment"]["code"] for cell in stored()}))
    series.driver.write_text(f"{DRIVER}\n# changed\n")
    declare(monkeypatch, series)
    assert history()[:2] == first[:2]
    repository.version("more again", scans=20)
    history()
    assert Path("history/toylib/history.jsonl").read_bytes().startswith(content)
    assert len(stored()) == 3


def test_counts_of_another_machine_are_used_and_times_are_not(
    history, repository, monkeypatch, tmp_path
):
    """A history has the times of one machine, and says what it takes from another."""
    monkeypatch.setenv(MACHINE, "")
    repository.version("the first")
    repository.version("more", scans=9)
    history("--repeat", "3")
    monkeypatch.setattr(platform, "node", lambda: "another-host")
    counts = rows()[0]["enumerate_calls"]
    code, _, err = history()
    assert (code, len(stored())) == (0, 2)
    assert "2 stored commits used without times of another machine" in err
    assert [row["cpu_s"] for row in rows()] == ["", ""]
    assert rows()[0]["enumerate_calls"] == counts

    _, _, err = history("--repeat", "3")
    assert "2 stored commits not used: times of another machine" in err
    assert [float(row["cpu_s"]) for row in rows()] == [
        pytest.approx(cell["cpu_s"]["median"]) for cell in stored()[2:]
    ]
    _, _, err = history("--repeat", "3")
    assert (len(stored()), "used" in err.lower()) == (4, False)


def test_equal_files_are_run_once_and_tests_are_no_files_that_matter(history, repository):
    """A commit that restores files has the counts of the first."""
    repository.version("the first")
    repository.version("more", scans=9)
    repository.version("back", scans=1)
    test = repository.commit("a test", {"toylib/planning/tests/test_it.py": "assert True"})
    repository.version("other", scans=1, plan=4)
    history()
    assert [row["same_files_as"] == "" for row in rows()] == [True, True, False, False, True]
    # `back` and the test are sides of a step, and so were run themselves when that was traced.
    history()
    assert all(row["same_files_as"] == "" for row in rows())
    assert test in {each["variant"] for each in stored()}
    assert len(stored()) == 5


def test_commits_that_do_not_run_are_grouped_and_cast_doubt(history, repository):
    """A step after them may come from any of them."""
    repository.version("the first")
    for number in range(2):
        repository.version(f"broken {number}", broken=True)
        repository.commit("more", {"toylib/planning/note.txt": f"{number}"})
    repository.version("works", scans=9)
    code, out, _ = history()
    out = " ".join(out.split())
    assert code == 0
    assert "2 of 5 commits could be run." in out
    assert re.search(r"\w{9}, \w{9} and \w{9} could not be run", out)
    assert "ImportError: needs CUDA." in out
    assert re.search(r"or \w+, \w+ and \w+ before it, which could not be run", out)
    assert history("main~4..main~1", "--out", "none")[0] == 1


def test_a_step_that_came_from_elsewhere_is_traced_to_its_commit(history, repository):
    """A commit outside of the planner's files may change its calls."""
    repository.version("the first")
    repository.commit("words", {"README": "a library"})
    helper = repository.version("Help more", steps=500)
    repository.commit("words again", {"README": "a good library"})
    repository.version("A word of the planner", steps=500)
    innocent = repository.commit("a comment", {"toylib/planning/note.txt": "a word"})
    _, out, _ = history()
    table = out.partition("* ")[0]
    assert helper[:9] in table
    assert innocent[:9] not in table
    assert "touches none of the files" in " ".join(table.split())


def test_find_bisects_to_the_commit_and_says_what_it_did(history, repository):
    """Few commits are run, and stored ones are not run again."""
    first = repository.version("version 0")
    names = [
        repository.version(f"version {n}", scans=9 if n > 21 else 1, plan=n) for n in range(40)
    ]
    code, out, err = history(f"{first}..", "--find", "enumerate_calls")
    assert code == 0
    assert re.search(rf"{names[22][:9]} +2026-01-02 .* version 22", out)
    assert f"{names[22][:9]}: enumerate_calls: " in out
    assert "planning.look" in out
    assert int(err.split()[0]) <= 10
    _, out, err = history(f"{first}..", "--find", "copies")
    assert "copies: 9 after 1, 9.00 times" in " ".join(out.split())
    assert err.startswith("0 commits run")


def test_a_commit_is_judged_by_an_earlier_one_as_the_gate_does(history, repository):
    """Exit codes are those of the gate."""
    first = repository.version("the first", broken=True)
    for scans, plan in ((100, 3), (101, 3), (200, 3), (200, 4)):
        repository.version(f"{scans} {plan}", scans=scans, plan=plan)
    ends = {"main~3..main~2": 0, "main~2..main~1": 1, "main~1..main": 1, f"{first}..main": 3}
    for wanted, expected in ends.items():
        code, out, _ = history(wanted, "--gate")
        assert (wanted, code) == (wanted, expected)
        assert ("enumerate_calls: " in out) == (wanted == "main~2..main~1")
    assert "`cost`" in Path("history/toylib/verdict.md").read_text()


def test_an_error_is_not_a_verdict_of_the_gate(history, repository, tmp_path):
    """With --gate an error exits with 3, as 2 is inconclusive; a shallow clone is named."""
    repository.version("the first")
    repository.version("the second", plan=4)
    code, _, err = history("nothing..main", "--gate")
    assert (code, "names no commit" in err) == (3, True)
    assert history("nothing..main")[0] == 2
    repository.git(
        "clone", "-q", "--depth", "1", f"file://{repository.folder}", str(tmp_path / "new")
    )
    code, _, err = history("HEAD^1..HEAD", "-r", "new", "--gate")
    assert (code, "shallow clone" in err) == (3, True)
    code, _, err = history("-r", "new")
    assert (code, "shallow clone" in err) == (0, True)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("releases toylid 1.0.0", "'toylid'"),
        ("releases toylib 1.0.0 -p toy/none:8", "topology 'none'"),
        ("releases toylib 1.0.0 --out driver/driver.py", "cannot be written"),
        ("history toylid", "'toylid'"),
        ("history toylib -r nowhere", "No such file"),
        ("history toylib -r empty", "not a git repository"),
        ("history toylib main -r clone", "RANGE must be A..B"),
        ("history toylib ..--all -r clone", "'--all' names no commit"),
        ("history toylib main..main~1 -r clone", "main does not come before main~1"),
        ("history toylib -r clone --find speed", "counter or quality 'speed'"),
        ("history toylib -r clone --find copies", "--find needs a range"),
        ("history toylib main~1.. -r clone --find copies", "copies is the same at"),
        ("history toylib -r clone --least 0.5", "--least"),
    ],
)
@pytest.mark.usefixtures("releases")
def test_bad_input_gets_one_sentence(shardbench, repository, tmp_path, command, named):
    """Exit code 2, and nothing on standard output."""
    repository.version("the first")
    repository.version("the second", plan=4, scans=1)
    (tmp_path / "empty").mkdir()
    code, out, err = shardbench(*command.split())
    assert (code, out) == (2, "")
    assert named in " ".join(err.split())
    assert "Traceback" not in err

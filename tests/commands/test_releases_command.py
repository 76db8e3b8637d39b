"""`shardbench releases`: a library of a wheel folder, installed and driven for real."""

import csv
import json
from pathlib import Path

import pytest
from toy_library import declared, family, library_files, write_files, write_installed, write_wheel

from harness.contract.registry import Registry
from shardbench.cli import main

ALL = ("1.0.0", "1.5.0", "2.0.0")
SCANS = dict(zip(ALL, (1, 1, 10), strict=True))
ONE = ("-p", "toy[size=3]/dgx_a100_80gb:8")


def keep(*releases: str) -> None:
    """Have releases installed already: what is tested comes after that."""
    for release in releases:
        write_installed(Path("upstreams", "releases"), release, SCANS[release])


@pytest.fixture
def with_figures(capsys, monkeypatch, tmp_path):
    wheels = tmp_path / "wheels"
    for release, scans in SCANS.items():
        write_wheel(wheels, release, scans)
    registry = Registry([family(declared(tmp_path))])
    monkeypatch.setattr("shardbench.commands.releases.found_registry", lambda: registry)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["releases", *arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def shardbench(with_figures, monkeypatch):
    """What one test looks at is not drawn for the others."""
    monkeypatch.setattr("reports.series.figure.draw", lambda *_: None)
    return with_figures


def test_a_range_is_installed_measured_and_drawn(with_figures, tmp_path):
    keep("1.0.0", "2.0.0")
    code, out, _ = with_figures("toylib", "1.0.0..2.0.0", "--repeat", "2")
    assert code == 0
    table = [line.split()[0] for line in out.splitlines() if line.startswith(ALL)]
    assert table[:3] == list(ALL)
    assert "2.0.0: enumerate makes" in out
    assert "planning.look" in out
    assert "All 3 releases decide the same." in out
    assert sorted(each.name for each in (tmp_path / "history").iterdir()) == [
        *("history.csv", "history.jsonl", "history.md", "history.png", "history.svg")
    ]
    with (tmp_path / "history" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["release"] for row in rows] == [*ALL, *ALL]
    assert (tmp_path / "upstreams" / "releases" / "toylib-1.5.0").is_dir()


def test_a_release_that_is_not_there_is_told_and_the_rest_goes_on(shardbench):
    keep("1.0.0")
    code, out, err = shardbench("toylib", "1.0.0", "9.9.9", "--repeat", "2", *ONE)
    assert code == 0
    assert "toylib 9.9.9 could not be installed: No matching distribution found" in err
    assert "9.9.9 did not run: " in out
    assert "\n1.0.0 " in out


def test_nothing_that_runs_is_a_failure(shardbench):
    code, out, _ = shardbench("toylib", "9.9.9", "--repeat", "2", *ONE)
    assert code == 1
    assert "9.9.9 did not run: " in out


def test_without_an_index_a_range_has_what_is_installed(shardbench, monkeypatch, tmp_path):
    keep("1.0.0", "2.0.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "none"))
    code, out, err = shardbench("toylib", "1.0.0..", "--repeat", "2", *ONE)
    assert code == 0
    assert "A range has only the releases that are installed." in err
    assert [line.split()[0] for line in out.splitlines() if line.startswith(ALL)][:2] == [
        "1.0.0",
        "2.0.0",
    ]


def test_a_given_folder_is_measured(shardbench, tmp_path):
    held = write_installed(tmp_path / "elsewhere", "1.0.0")
    given = ("--at", f"1.0.0={held}", "--out", "two")
    code, out, _ = shardbench("toylib", *given, "--repeat", "2", *ONE)
    assert code == 0
    assert "\n1.0.0 " in out


def test_the_second_run_measures_nothing(shardbench, tmp_path):
    keep("1.0.0", "2.0.0")
    first = shardbench("toylib", "1.0.0", "2.0.0", "--repeat", "2", *ONE)
    stored = (tmp_path / "history" / "history.jsonl").read_bytes()
    second = shardbench("toylib", "1.0.0", "2.0.0", "--repeat", "2", *ONE)
    assert (tmp_path / "history" / "history.jsonl").read_bytes() == stored
    assert first[1] == second[1]


def test_a_release_that_is_added_is_measured_alone(shardbench, tmp_path):
    stored = tmp_path / "history" / "history.jsonl"
    keep("1.0.0", "2.0.0")
    shardbench("toylib", "1.0.0", "--repeat", "2", *ONE)
    content = stored.read_bytes()
    code, out, _ = shardbench("toylib", "1.0.0", "2.0.0", "--repeat", "2", *ONE)
    assert code == 0
    assert "2.0.0: enumerate makes" in out
    assert stored.read_bytes().startswith(content)
    assert stored.read_bytes().count(b"\n") == 2


def test_a_release_that_failed_is_tried_again(shardbench, tmp_path):
    keep("1.0.0", "2.0.0")
    kept = tmp_path / "upstreams" / "releases"
    installed = write_installed(kept, "0.9.0", source="raise ImportError('needs CUDA')")
    code, out, _ = shardbench("toylib", "0.9.0", "1.0.0", "2.0.0", "--repeat", "2", *ONE)
    assert code == 0
    assert "0.9.0 did not run: toylib 0.9.0 raised ImportError: needs CUDA." in out
    assert "From 1.0.0 to 2.0.0: " in out
    write_files(installed, library_files("0.9.0"))
    code, out, _ = shardbench("toylib", "0.9.0", "1.0.0", "2.0.0", "--repeat", "2", *ONE)
    assert "did not run" not in out
    assert "From 0.9.0 to 2.0.0: " in out


def test_tables_fit_a_narrow_terminal(shardbench, tmp_path):
    keep("1.0.0")
    write_installed(tmp_path / "upstreams" / "releases", "10.10.10", scans=300)
    _, out, _ = shardbench("toylib", "1.0.0", "10.10.10", "9.9.9", "--repeat", "2", *ONE)
    table = out[: out.index("calls: of enumerate")]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 80


def test_lines_of_the_former_format_are_moved_aside(shardbench, tmp_path):
    former = {"schema": 1, "kind": "round", "library": "toylib", "problem": "toy", "times": {}}
    stored = tmp_path / "history" / "history.jsonl"
    stored.parent.mkdir()
    stored.write_text(json.dumps(former) + "\n")
    keep("1.0.0")
    code, _, err = shardbench("toylib", "1.0.0", "--repeat", "2", *ONE)
    assert code == 0
    assert "Damaged: history/history.jsonl, line 1: it is no cell: " in err
    assert "They are moved to history/history.jsonl.damaged." in err
    assert json.loads(stored.with_name("history.jsonl.damaged").read_text()) == former
    assert json.loads(stored.read_text())["cell"] == f"toylib/1.0.0@{ONE[1]}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["toylid", "1.0.0"], "Unknown library with releases to measure, 'toylid'"),
        (["toylib", "newest"], "'newest' is no release; write a version"),
        (["toylib", "2.0.0..1.0.0"], "The range 2.0.0..1.0.0 ends before it begins."),
        (["toylib", "5.0.0..6.0.0"], "There is no release in the range 5.0.0..6.0.0"),
        (["toylib", "installed"], "toylib is not installed here."),
        (["toylib", "1.0.0", "--repeat", "1"], "--repeat must be at least 2, not 1."),
        (["toylib", "1.0.0", "--seconds", "0"], "--seconds must be a positive number"),
        (["toylib", "1.0.0", "--budget", "nan"], "--budget must be a positive number"),
        (["toylib", "1.0.0", "-p", "toy"], "Problem 'toy' is malformed"),
        (["toylib", "1.0.0", "-p", "toy/none:8"], "Unknown topology 'none'"),
        (["toylib", "--at", "1.0.0"], "--at must be VERSION=FOLDER"),
        (["toylib", "--at", "1.0.0=nowhere"], "nowhere is no folder"),
        (["toylib", "1.0.0", "--out", "wheels/toylib-1.0.0-py3-none-any.whl"], "cannot be written"),
    ],
)
def test_bad_input_gets_one_sentence(shardbench, arguments, sentence):
    code, out, err = shardbench(*arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert len(err.strip().splitlines()) == 1

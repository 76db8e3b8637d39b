"""`shardbench sweep`: command lines, output, and exit codes."""

import platform
import re
from pathlib import Path

import pytest
import toy_registries

from harness.measuring.environment import MACHINE
from harness.store.cells import CellStore
from harness.store.lines import hold

SUITE = """
name = "tiny"
[[study]]
family = "toy"
variants = ["same", "raises", "missing"]
workloads = ["toy[size={size}]"]
topologies = ["dgx_a100_80gb:2"]
[study.matrix]
size = [4, 6]
"""
QUICK = ("--seconds", "0.01", "--budget", "30")


@pytest.fixture
def shardbench(shardbench, use_families, tmp_path):
    """Return a function that runs a command with the toy family and one of its suites."""
    use_families(toy_registries.toy_registry)
    (tmp_path / "tiny.toml").write_text(SUITE)
    return shardbench


def cells(path: Path) -> list[str]:
    return [entry.id for entry in CellStore(path).entries]


def test_a_suite_is_measured_told_of_and_not_measured_again(shardbench, tmp_path):
    """Failures are listed, and a second sweep measures nothing."""
    code, out, err = shardbench("sweep", "tiny.toml", *QUICK)
    assert code == 0, err
    assert out.splitlines() == [
        "8 cells: 4 ok, 2 not installed, 2 failed.",
        "Failed: toy/raises@toy[size=4]/dgx_a100_80gb:2: ValueError: no item likes me",
        "Failed: toy/raises@toy[size=6]/dgx_a100_80gb:2: ValueError: no item likes me",
        "The results are in results/tiny.jsonl; a report of them: shardbench report "
        "results/tiny.jsonl",
    ]
    assert err.startswith("1/2 toy on toy[size=4]/dgx_a100_80gb:2: raises failed (ValueError:")
    path = tmp_path / "results" / "tiny.jsonl"
    assert [each.name for each in path.parent.iterdir()] == ["tiny.jsonl"]
    assert len(set(cells(path))) == len(cells(path)) == 8

    before = path.read_bytes()
    code, out, err = shardbench("sweep", "tiny.toml", *QUICK)
    assert code == 0
    assert out.startswith("8 cells: 4 ok, 2 not installed, 2 failed.\n")
    assert err == (
        "Measured already in results/tiny.jsonl: 2 of 2 problems; --fresh measures again.\n"
    )
    assert path.read_bytes() == before


def test_what_is_cut_short_is_gone_on_with_and_damage_is_moved_aside(shardbench, tmp_path):
    """A report leaves a damaged file as it is; a sweep repairs it."""
    path = tmp_path / "mine.jsonl"
    shardbench("sweep", "tiny.toml", *QUICK, "--results", "mine.jsonl")
    whole = cells(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"not a cell\n", *lines[3:-3], lines[-3][:40]]))
    before = path.read_bytes()
    code, _, err = shardbench("report", str(path))
    assert (code, path.read_bytes()) == (0, before)
    assert f"Damaged: {path}, line 4: it is not JSON" in err
    code, _, err = shardbench("sweep", "tiny.toml", *QUICK, "--results", "mine.jsonl")
    assert code == 0
    assert err.startswith("Damaged: mine.jsonl, line 4: it is not JSON: ")
    assert (tmp_path / "mine.jsonl.damaged").read_bytes() == b"not a cell\n"
    assert sorted(cells(path)) == sorted(whole)


def test_results_of_another_machine_are_kept_beside_with_the_reason(
    shardbench, tmp_path, monkeypatch
):
    """Times of two machines are never in one file."""
    monkeypatch.setenv(MACHINE, "")
    path = tmp_path / "results" / "tiny.jsonl"
    shardbench("sweep", "tiny.toml", *QUICK)
    before = path.read_bytes()
    monkeypatch.setattr(platform, "node", lambda: "another-host")
    code, _, err = shardbench("sweep", "tiny.toml", *QUICK)
    assert code == 0
    assert "Not used: 8 cells in results/tiny.jsonl, with times of another machine" in err
    assert "--machine" in err
    (kept,) = re.findall(r"^Earlier results are kept in (\S+)\.$", err, re.MULTILINE)
    assert (tmp_path / kept).read_bytes() == before


def test_what_would_run_is_listed(shardbench, tmp_path):
    """A dry run measures and writes nothing."""
    said = {}
    for names in ("tiny.toml", "default", "toy", ""):
        code, out, _ = shardbench("sweep", *filter(None, [names]), "--dry-run")
        assert code == 0
        assert out.splitlines()[-1].startswith("2 problems, 2 to measure, into results/")
        said[names] = out
    assert said[""] == said["default"]
    code, out, _ = shardbench("sweep", "tiny.toml", "--dry-run")
    assert out.splitlines()[0] == (
        "to measure  toy on toy[size=4]/dgx_a100_80gb:2: reference, same, raises, missing"
    )
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.toml"]


def test_where_nothing_is_ok_it_ends_with_1(shardbench, tmp_path):
    """A suite that only fails is no success."""
    text = SUITE.replace('"same", "raises", "missing"', '"raises"') + "\n"
    (tmp_path / "bad.toml").write_text(text.replace("workloads", 'against = "raises"\nworkloads'))
    code, out, _ = shardbench("sweep", "bad.toml", *QUICK)
    assert code == 1
    assert out.startswith("2 cells: 2 failed.\n")


def test_a_second_one_on_the_file_is_refused(shardbench, tmp_path):
    """Sweeps, reports and comparisons lock their file of results."""
    path, other = (tmp_path / "results" / f"{name}.jsonl" for name in ("tiny", "report"))
    compare = ("compare", "toy", "-w", "toy", "-t", "dgx_a100_80gb", "-n", "2")
    with hold(path), hold(other):
        for arguments in (("sweep", "tiny.toml"), ("report",), (*compare, "--results", str(path))):
            code, out, err = shardbench(*arguments)
            assert (code, out) == (1, "")
            assert re.search(r"Process \d+ is measuring into \S+; wait .*\n", err)

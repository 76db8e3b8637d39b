"""`shardbench gate` as CI runs it: exit codes, files, signals; no verdict without judging."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import toy_registries
from made_up_cells import WIDE, line, results, write

from harness.contract.registry import Registry
from harness.gate.expectations import Expectations, first_suite, load_expectations
from harness.model.ids import CellId
from harness.store.cells import read_cells


@pytest.fixture
def gate(shardbench):
    return partial(shardbench, "gate")


@pytest.fixture
def expected(gate, tmp_path: Path) -> Path:
    """A file of expectations; the unchanged cells of `made_up_cells.results` meet them."""
    write(tmp_path / "first.jsonl", [line("slow"), line()])
    assert gate("--init", "e.toml", "--judge", "first.jsonl")[0] == 0
    return tmp_path / "e.toml"


QUICK = CellId.parse(line()["cell"])


@pytest.mark.parametrize(
    ("changes", "code", "first"),
    [
        ({}, 0, "As expected: all 2 cells."),
        ({"counters": {"copies": 1001, "lookups": 20}}, 1, "Regression: 1 of 2 cells is worse"),
        ({"fingerprint": "decaf"}, 1, "Changed: 1 of 2 cells is other than expected."),
        ({"ratio": WIDE}, 2, "Inconclusive: 1 of 2 cells is perhaps slower"),
        ({"status": "not installed"}, 3, "Error: 1 of 2 cells could not be measured."),
    ],
)
def test_the_first_line_and_the_exit_code_say_it(gate, expected, tmp_path, changes, code, first):
    """The page for CI begins with the same line."""
    found, out, _ = gate("e.toml", "--judge", results(tmp_path, **changes), "--markdown", "v.md")
    assert found == code
    assert out.startswith(first)
    page = (tmp_path / "v.md").read_text()
    assert page.startswith(f"## {first.rstrip('.')}")
    assert gate("e.toml", "--judge", "results.jsonl", "--markdown", "-")[:2] == (code, page)
    assert (tmp_path / "e.new.toml").exists() == (code == 1)


def test_what_differs_can_be_accepted(gate, expected, tmp_path):
    """The new expectations are a file beside the old ones, and commands look closer."""
    committed = expected.read_bytes()
    changed = results(tmp_path, fingerprint="decaf")
    _, out, _ = gate("e.toml", "--judge", changed)
    assert "  mv e.new.toml e.toml\n" in out
    assert "  shardbench compare boxing -w 'crates[boxes=10]' -t toy_rack -n 4" in out
    assert "  shardbench profile boxing quick -w " in out
    assert expected.read_bytes() == committed, "it is the user who accepts"
    (tmp_path / "e.new.toml").replace(expected)
    assert gate("e.toml", "--judge", changed)[0] == 0


def test_a_first_file_gives_no_figures_to_what_is_wrong(gate, tmp_path):
    """A wrong decision is named and expects nothing."""
    write(tmp_path / "first.jsonl", [line("slow"), line(decision="different")])
    code, out, err = gate("--init", "e.toml", "--judge", "first.jsonl")
    assert code == 0
    assert "Wrote e.toml with 2 cells." in out
    assert f"{QUICK} failed or makes a wrong decision" in err
    assert not load_expectations(tmp_path / "e.toml").cells[QUICK].figures


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name a file of expectations"),
        (["none.toml"], "none.toml does not exist; 'shardbench gate --init"),
        (["e.toml", "--judge", "none.jsonl"], "none.jsonl cannot be read"),
        (["e.toml", "--budget", "0"], "not in the range"),
        (["e.toml", "--judge", "first.jsonl", "--results", "r.jsonl"], "takes no --results"),
        (["e.toml", "--judge", "first.jsonl", "--markdown", "./e.toml"], "named twice"),
        (["e.toml", "--judge", "first.jsonl", "--markdown", "no/v.md"], "is not a folder"),
        (["--init", "e.toml", "--judge", "first.jsonl"], "is there already"),
        (["--init", "no/e.toml"], "is not a folder"),
        (["--init", "n.toml", "--new", "m.toml"], "--init judges nothing"),
        (["empty.toml"], "The expectations name no cell"),
        (["e.toml"], "Unknown family 'boxing'"),
    ],
)
def test_bad_input_is_no_verdict(gate, expected, tmp_path, arguments, sentence):
    """Errors exit with 3 and change no file."""
    (tmp_path / "empty.toml").write_text("")
    before = expected.read_bytes()
    code, out, err = gate(*arguments)
    assert (code, out) == (3, "")
    assert sentence in err
    assert "Traceback" not in err
    assert expected.read_bytes() == before


def test_a_crash_is_no_verdict(gate, expected, tmp_path, monkeypatch):
    """An error of the gate itself exits with 3, and the page says so."""

    def crash(*arguments: Any) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("shardbench.commands.gate.judge_cells", crash)
    code, out, err = gate("e.toml", "--judge", results(tmp_path), "--markdown", "v.md")
    assert (code, out) == (3, "")
    assert "ZeroDivisionError: oops" in err
    assert "The gate itself failed: ZeroDivisionError." in err
    assert "The gate itself failed" in (tmp_path / "v.md").read_text()


SHORT = ("--seconds", "0.1", "--budget", "30")


@pytest.fixture
def toys(use_families):
    """The toy family, whose cells are measured in child processes."""
    use_families(toy_registries.toy_registry)


def test_a_first_suite_is_measured_stored_and_as_expected_afterwards(
    gate, toys, tmp_path, monkeypatch
):
    """The file that `--init` writes is met by the next run."""

    def suite(families: Registry) -> tuple[Expectations, list[str]]:
        return first_suite(families)[0], ["a family is left out"]

    monkeypatch.setattr("shardbench.commands.gate.first_suite", suite)
    code, out, err = gate("--init", *SHORT)
    assert code == 0, err
    assert "Wrote expectations.toml with 2 cells." in out
    assert "a family is left out" in err
    cells = load_expectations(tmp_path / "expectations.toml").cells
    assert [each.counters["dealt"] for each in cells.values()] == [4, 4]
    stored = read_cells(tmp_path / "results" / "gate.jsonl")
    assert {cell.id for cell in stored} == set(cells)

    code, out, err = gate("expectations.toml", *SHORT)
    assert code in (0, 2), out  # the ratio of calls of microseconds
    assert "Earlier results are kept in" in err


@pytest.mark.parametrize(
    ("cell", "code", "first"),
    [
        ("same@toy[size=4]", 1, "Changed: 1 of 2 cells is other than expected, 1 not expected yet"),
        ("raises@toy[size=4]", 1, "Regression: 1 of 2 cells is worse"),
        ("missing@toy[size=4]", 3, "Error: 1 of 2 cells could not be"),
        ("same@toy[size=none]", 3, ""),
    ],
)
def test_what_cannot_be_measured_or_differs_is_no_success(gate, toys, tmp_path, cell, code, first):
    """Failures and other decisions have exit codes above 0."""
    row = f'[cell."toy/{cell}/dgx_a100_80gb:2"]\nfingerprint = "0-1-0-2"\n'
    (tmp_path / "e.toml").write_text(row)
    result, out, _ = gate("e.toml", *SHORT)
    assert result == code
    assert out.startswith(first)
    assert ("no item likes me" in " ".join(out.split())) == ("raises" in cell)


ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(expected, tmp_path):
    """Return a function that starts `shardbench gate e.toml` with changes to the environment."""

    def start(*arguments, changes=(), **options):
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | dict(changes)
        command = [sys.executable, "-m", "shardbench", "gate", "e.toml", *arguments]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, **options)

    return start


@pytest.fixture
def closed() -> Iterator[int]:
    """A pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_reader_that_closes_early_changes_nothing(start, closed, tmp_path):
    """A closed pipe leaves the exit code."""
    wide = results(tmp_path, ratio=WIDE)
    process = start("--judge", wide, stdout=closed, stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_both_outputs_gone_is_never_a_success(start, closed, unbuffered):
    """Buffered output that is lost at exit changes no exit code."""
    # What is still in a buffer when Python ends would make it exit with 120.
    changes = {"PYTHONUNBUFFERED": unbuffered}
    process = start("--judge", "none.jsonl", changes=changes, stdout=closed, stderr=closed)
    assert process.wait(timeout=60) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_is_never_a_success(start, tmp_path, number):
    """A gate that is stopped has no verdict."""
    os.mkfifo(tmp_path / "ready")
    (tmp_path / "sitecustomize.py").write_text(
        "import signal\n"
        # which a shell ignores for what it runs in the background
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import harness.gate.expectations as e\n"
        "def wait(path):\n"
        "    open('ready', 'w').close()\n"
        "    import time; time.sleep(60)\n"
        "e.load_expectations = wait\n"
    )
    process = start(
        *("--judge", results(tmp_path), "--markdown", "v.md"),
        changes={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    (tmp_path / "ready").open().close()  # blocks until it waits
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode not in (0, 1, 2)
    assert out == b""
    assert "As expected" not in (tmp_path / "v.md").read_text()


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 2), (2, 0), (3, 2)])
def test_make_gate_lets_what_is_inconclusive_pass_and_nothing_else(tmp_path, code, ends):
    """The project's own CI runs `make gate`; after any failure make's exit code is 2."""
    command = tmp_path / "bin" / "shardbench"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho verdict\nexit {code}\n")
    command.chmod(0o755)
    (tmp_path / ".ready").touch()
    # An old one is not to be made anew here.
    options = [f"VENV={tmp_path}", "--old-file", f"{tmp_path}/.ready", "--silent"]
    done = subprocess.run(
        ["make", "-C", str(ROOT), "gate", *options], check=False, capture_output=True
    )
    assert (done.returncode, b"verdict" in done.stdout) == (ends, True)
    assert " gate " in (ROOT / ".ci" / "run").read_text()

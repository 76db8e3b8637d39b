"""The exit code of the process `shardbench gate`, even if its output cannot be written."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up_cells import WIDE, results

ROOT = Path(__file__).parents[3]


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
def test_both_outputs_gone_is_never_a_success(start, closed, unbuffered: str):
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
    assert "\nmake gate\n" in (ROOT / ".ci" / "run").read_text()

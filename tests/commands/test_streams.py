"""Commands whose standard streams are closed, full, or cannot show every letter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTING = ("list", "families")
UNKNOWN = ("list", "families", "unknown")


def run(*arguments: str, shell: str = "", **changes: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with redirections of a shell, in the environment with changes."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "shardbench", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **changes},
        timeout=60,
        check=False,
    )


def test_a_full_disk_is_one_sentence():
    """Output that cannot be written is an error of one sentence, not a traceback."""
    ended = run(*LISTING, shell=">/dev/full")
    assert ended.returncode == 1
    assert ended.stderr.count(b"\n") == 1
    assert b"No space left on device" in ended.stderr
    assert run(*UNKNOWN, shell="2>/dev/full").returncode == 2


@pytest.mark.parametrize("shell", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(shell: str):
    """A closed stream loses its output, and changes nothing else."""
    assert run(*LISTING, shell=shell).returncode == 0
    assert run(*UNKNOWN, shell=shell).returncode == 2


def test_letters_that_a_terminal_lacks_are_replaced():
    """Output in an encoding without a letter has a question mark in its place."""
    ended = run("doctor", "--seconds", "0.1", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert b"?" in ended.stdout


def test_child_processes_start_with_closed_streams_and_a_long_temporary_path(tmp_path: Path):
    """A command that starts processes measures and writes its file."""
    written = tmp_path / "doctor.json"
    folder = tmp_path / ("a" * 200)
    folder.mkdir()
    command = ("doctor", "--seconds", "0.1", f"--json={written}")
    ended = run(*command, shell="<&- >&- 2>&-", TMPDIR=str(folder))
    assert ended.returncode == 0
    assert written.stat().st_size

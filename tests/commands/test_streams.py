"""Commands whose standard streams are closed, full, or cannot show every letter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTING = ("list", "families")
UNKNOWN = ("list", "famies")


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


def test_child_processes_start_with_closed_streams(tmp_path: Path):
    """A command that starts processes measures and writes its file with all streams closed."""
    written = tmp_path / "doctor.json"
    ended = run(
        "doctor", "--seconds", "0.1", f"--json={written}", shell="<&- >&- 2>&-",
    )  # fmt: skip
    assert ended.returncode == 0
    assert written.stat().st_size


def test_letters_that_a_terminal_lacks_are_replaced():
    """Output in an encoding without a letter such as µ has another one in its place."""
    script = (
        "from shardbench.streams import prepare_streams\n"
        "prepare_streams()\n"
        "print('1.6\\xd7 (1.5\\u20131.7) — 3 µs → 名')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
        cwd=ROOT,
    )
    assert ended.stdout == b"1.6x (1.5-1.7) - 3 us -> ?\n"


@pytest.mark.parametrize("length", [70, 110, 200])
def test_a_temporary_folder_with_a_long_path_is_no_obstacle(tmp_path: Path, length: int):
    """Processes start although the socket's path in the temporary folder would be too long."""
    folder = tmp_path / ("a" * max(1, length - len(str(tmp_path)) - 1))
    folder.mkdir()
    assert run("doctor", "--seconds", "0.1", TMPDIR=str(folder)).returncode == 0

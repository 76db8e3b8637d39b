"""Commands whose standard streams are closed, full, or cannot show every letter."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_closed_streams_change_no_exit_code():
    """A closed stream loses its output, and changes nothing else."""
    assert run(*LISTING, shell="<&- >&- 2>&-").returncode == 0
    assert run(*UNKNOWN, shell="2>&-").returncode == 2


def test_child_processes_start_without_streams_and_letters_that_a_terminal_lacks_are_replaced(
    tmp_path: Path,
):
    """A command that starts processes works, also with a long path of temporary files."""
    folder = tmp_path / ("a" * 200)
    folder.mkdir()
    command = ("doctor", "--seconds", "0.1")
    ended = run(*command, shell="<&- 2>&-", TMPDIR=str(folder), PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert b"?" in ended.stdout

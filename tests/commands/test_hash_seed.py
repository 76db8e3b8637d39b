"""Commands that plan in their own process decide alike under every hash seed."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import atexit
atexit.register(lambda: print(hash("a table")))  # the order of a set of strings depends on it
from shardbench.cli import main
main()
"""


def test_the_hash_seed_of_the_shell_changes_no_decision():
    """A command that plans has the same hashes under two seeds of the shell."""
    hashes = set()
    for seed in ("1", "2"):
        out = subprocess.check_output(
            [sys.executable, "-c", SCRIPT, "plan", "--help"],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": seed},
            text=True,
        )
        hashes.add(out.splitlines()[-1])
    assert len(hashes) == 1

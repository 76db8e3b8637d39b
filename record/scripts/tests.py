"""Print how many tests of this project pass on this machine, and which fail.

`python record/scripts/tests.py` runs the test suite on all cores. The suite is the same with a GPU
and without one, so `--device cuda` only refuses a machine without a CUDA device.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from common import device_of, print_table

MOST = 10  # failed tests that are named
SUITE = ("-m", "not long and not slow and not docs", "-n", "auto", "--dist", "loadfile")


def counts(suite: ElementTree.Element) -> tuple[int, int, int, str]:
    """Return how many tests passed, failed and were skipped, and the names of failed ones."""
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = int(suite.get("skipped", 0))
    passed = int(suite.get("tests", 0)) - skipped - len(failed)
    named = ", ".join(failed[:MOST]) + (", and others" if len(failed) > MOST else "")
    return passed, len(failed), skipped, f"`{named or '-'}`"


if __name__ == "__main__":
    device_of(__doc__)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *SUITE, f"--junit-xml={file}"]
        subprocess.run(command, check=False, stdout=sys.stderr)
        if not file.exists():
            sys.exit(2)  # pytest says why
        (suite,) = ElementTree.parse(file).getroot().iter("testsuite")
    print_table(("passed", "failed", "skipped", "failed tests"), [counts(suite)], texts=0)

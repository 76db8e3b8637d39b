"""Print, in Markdown, how many tests of this project pass on this machine, and which fail.

`python docs/examples/gpu/tests.py` runs the test suite on all cores. Words after the options, such
as `tests/harness`, choose a part of it. The suite is the same with a GPU and without one, so
`--device cuda` only refuses a machine without a CUDA device.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from harness.contract import UsageError
from planners.embedding.estimates.device import Device
from reports.core.table import Table, as_markdown, code, numbers, table_of

MOST = 10  # failed tests that are named
SUITE = ("-m", "not long and not slow and not docs", "-n", "auto", "--dist", "loadfile")


def run_tests(parts: list[str]) -> ElementTree.Element | None:
    """Run tests with their output on stderr; return pytest's report, None if there is none."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *SUITE, f"--junit-xml={file}", *parts]
        subprocess.run(command, check=False, stdout=sys.stderr)
        return ElementTree.parse(file).getroot().find("testsuite") if file.exists() else None


def tests_table(suite: ElementTree.Element) -> Table:
    """Return one row: counts of tests, and the names of failed ones."""
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = int(suite.get("skipped", 0))
    passed = int(suite.get("tests", 0)) - skipped - len(failed)
    named = ", ".join(failed[:MOST]) + (", and others" if len(failed) > MOST else "")
    return table_of(
        [(passed, len(failed), skipped, named or "-")],
        numbers("passed", 0, str),
        numbers("failed", 1, str),
        numbers("skipped", 2, str),
        code("failed tests", 3),
    )


def main() -> None:
    """Run the tests and print the table; exit with 2 if they cannot run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("parts", nargs="*", help="files and folders; the whole suite without any")
    given = parser.parse_args()
    try:
        Device(given.device)
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    suite = run_tests(given.parts)
    if suite is None:
        print("pytest wrote no report.", file=sys.stderr)
        sys.exit(2)
    print(as_markdown(tests_table(suite)))


if __name__ == "__main__":
    main()

"""Runs a suite with pytest in a worker process, and reads the outcome of each test."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.peers.suites import PeerSuite

IN_CHILD = Path(__file__).parent / "in_child"

# pytest's exit codes where it ran to its end: all passed, some failed, there was none.
_RAN = (0, 1, 5)


class PeersError(Exception):
    """A suite could not be run; the message is one sentence."""


@dataclass
class Outcomes:
    """The outcomes of the tests of one run, by test id.

    Attributes:
        outcomes: `passed`, `failed` or `skipped`; a failure that a test expects is a pass.
        errors: the most informative line of the error, for each failed test.
        uncollected: the same, for each file that could not be imported.
        reached: the tests that used the drop-in, in any process.
    """

    outcomes: dict[str, str]
    errors: dict[str, str]
    uncollected: dict[str, str]
    reached: set[str]

    def of(self, outcome: str) -> set[str]:
        """Return the tests with an outcome."""
        return {test for test, each in self.outcomes.items() if each == outcome}


@dataclass(frozen=True)
class Runner:
    """Runs suites with these settings.

    Attributes:
        installed: whether to test the installed library instead of the checkout's own sources.
        limit: the longest time of a test, in seconds.
        pytest_args: arguments for pytest.
        logs: a folder for pytest's output.
    """

    installed: bool
    limit: float
    pytest_args: Sequence[str]
    logs: Path

    def run(self, suite: PeerSuite, checkout: Path, drop_in: str | None) -> Outcomes:
        """Run a suite, with or without a drop-in.

        A test that takes too long, or ends its process, has failed; the remaining tests run in
        another process.

        Raises:
            PeersError: pytest could not run them.
        """
        log = self.logs / f"{suite.name}-{drop_in or 'baseline'}.txt"
        with tempfile.TemporaryDirectory() as name, log.open("wb") as output:
            folder = Path(name)
            (folder / "reached").touch()
            process = subprocess.Popen(
                self._command(suite, checkout, folder),
                cwd=folder,
                env=self._environment(suite, checkout, drop_in, folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait()
            finally:  # what tests have left behind ends too
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if code not in _RAN:
                raise PeersError(f"pytest ended with code {code}; {log} says why.")
            recorded = json.loads((folder / "outcomes").read_text(encoding="utf-8"))
            reached = set((folder / "reached").read_text(encoding="utf-8").splitlines())
        return Outcomes(**recorded, reached=reached)

    def _command(self, suite: PeerSuite, checkout: Path, folder: Path) -> list[str]:
        settings = folder / "pytest.ini"  # neither the checkout's nor ours
        settings.write_text("[pytest]\n", encoding="utf-8")
        return [
            *(sys.executable, "-m", "pytest", "-p", "peers_plugin", "-p", "no:cacheprovider"),
            *("-c", str(settings), "--rootdir", str(checkout), "--noconftest", "--numprocesses=1"),
            # A worker ends with the test that ends it or takes too long; another one goes on.
            *("--max-worker-restart=1000000", "-o", f"faulthandler_timeout={self.limit}"),
            *("-o", "faulthandler_exit_on_timeout=true", "--continue-on-collection-errors"),
            *("-ra", "--tb=short", "--show-capture=no", "--hypothesis-seed=0"),
            # The names of tests' packages are not those of the installed library's, which is
            # imported first, so that no folder of the checkout takes its place.
            *(
                ["--import-mode=importlib", "-p", suite.library]
                if suite.from_checkout and self.installed
                else []
            ),
            *map(str, suite.paths_in(checkout)),
            *self.pytest_args,
        ]

    def _environment(
        self, suite: PeerSuite, checkout: Path, drop_in: str | None, folder: Path
    ) -> dict[str, str]:
        path = [str(IN_CHILD)]
        if suite.from_checkout and not self.installed:
            path.append(str(checkout))
        path.append(str(IN_CHILD.parents[2]))  # for `planners`; tests import their own `tests`
        path.append(os.environ.get("PYTHONPATH", ""))
        ours = {  # a worker of pytest-xdist may run these tests, which have workers of their own
            name: value for name, value in os.environ.items() if "PYTEST_XDIST" not in name
        }
        return ours | {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1",  # the checkout is the user's
            "PEERS_LIBRARY": suite.library,
            "PEERS_FOLDER": str(folder),
            "PEERS_DROP_IN": drop_in or "",
        }

"""Runs a suite in separate processes, and reads the outcome of each test."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

    outcomes: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    uncollected: dict[str, str] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)

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
        with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
            record = Path(folder) / "record"
            record.touch()
            while True:
                code = _run_pytest(
                    self._command(suite, checkout, Path(folder)),
                    folder,
                    self._environment(suite, checkout, drop_in, record),
                    output,
                )
                entries = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
                unfinished = _unfinished(entries)
                if unfinished is None:
                    break
                error = f"ended its process with code {code}, or took more than {self.limit:g} s"
                entry = {"test": unfinished, "outcome": "failed", "error": error}
                with record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            if code not in _RAN:
                raise PeersError(f"pytest ended with code {code}; {log} says why.")
        return _outcomes(entries)

    def _command(self, suite: PeerSuite, checkout: Path, folder: Path) -> list[str]:
        settings = folder / "pytest.ini"  # neither the checkout's nor ours
        settings.write_text("[pytest]\n", encoding="utf-8")
        return [
            *(sys.executable, "-m", "pytest", "-p", "peers_plugin", "-p", "no:cacheprovider"),
            *("-c", str(settings), "--rootdir", str(checkout), "--noconftest"),
            *(
                "-ra",
                "--tb=short",
                "--show-capture=no",
                "--continue-on-collection-errors",
                "--hypothesis-seed=0",
            ),
            # The names of tests' packages are not those of the installed library's, which is
            # imported first, so that no folder of the checkout takes its place.
            *(
                ["--import-mode=importlib", "-p", suite.library]
                if suite.from_checkout and self.installed
                else []
            ),
            *("-o", f"faulthandler_timeout={self.limit}"),
            *("-o", "faulthandler_exit_on_timeout=true"),
            *map(str, suite.paths_in(checkout)),
            *self.pytest_args,
        ]

    def _environment(
        self, suite: PeerSuite, checkout: Path, drop_in: str | None, record: Path
    ) -> dict[str, str]:
        path = [str(IN_CHILD)]
        if suite.from_checkout and not self.installed:
            path.append(str(checkout))
        path.append(str(IN_CHILD.parents[2]))  # for `planners`; tests import their own `tests`
        path.append(os.environ.get("PYTHONPATH", ""))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1",  # the checkout is the user's
            "PEERS_LIBRARY": suite.library,
            "PEERS_RECORD": str(record),
        }
        environment.pop("PEERS_DROP_IN", None)
        return environment | ({"PEERS_DROP_IN": drop_in} if drop_in else {})


def _run_pytest(command: list[str], folder: str, environment: dict[str, str], output: Any) -> int:
    """Run pytest and return its exit code; kill the processes that its tests left behind."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _unfinished(entries: list[dict[str, Any]]) -> str | None:
    """Return the test that was running when the process ended."""
    started = {entry["test"] for entry in entries if "test" in entry}
    finished = {entry["test"] for entry in entries if "outcome" in entry}
    return next(iter(started - finished), None)


def _outcomes(entries: list[dict[str, Any]]) -> Outcomes:
    found = Outcomes()
    for entry in entries:
        if "outcome" in entry:
            found.outcomes[entry["test"]] = entry["outcome"]
            if entry["error"]:
                found.errors[entry["test"]] = entry["error"]
        elif "uncollected" in entry:
            found.uncollected[entry["uncollected"]] = entry["error"]
        elif "reached" in entry:
            found.reached.add(entry["reached"])
    return found

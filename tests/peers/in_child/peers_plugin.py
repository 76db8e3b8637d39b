"""A pytest plugin that puts the drop-in in place in the worker, and writes down every outcome."""

import json
import os
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest

IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ
DROP_IN = os.environ["PEERS_DROP_IN"]

if IN_WORKER and os.environ["PEERS_LIBRARY"] == "colossalai":
    from planners.dimspec.upstream import stubs

    stubs.install()  # without and with the drop-in

if IN_WORKER and DROP_IN:  # before any test is imported, so that all of them see the drop-in
    from peers_drop_in import note_reached, put_in_place

    reached = put_in_place(DROP_IN)
    before: Hashable = None

    def pytest_runtest_logstart() -> None:
        """Note how much the drop-in was used before the test."""
        global before
        before = reached()

    def pytest_runtest_logfinish(nodeid: str) -> None:
        """Note the test if it has used the drop-in."""
        if reached() != before:
            note_reached(nodeid)


outcomes: dict[str, str] = {}
errors: dict[str, str] = {}
uncollected: dict[str, str] = {}

# The process that starts workers hears of the tests that end one, too.
if not IN_WORKER:

    def pytest_collectreport(report: pytest.CollectReport) -> None:
        """Keep the errors of files that cannot be collected."""
        if report.failed:
            uncollected[report.nodeid] = first_line(report.longreprtext)

    def pytest_runtest_logreport(report: Any) -> None:
        """Keep the worst outcome of a test's phases; an expected failure is a pass."""
        test = report.nodeid
        outcomes.setdefault(test, "passed")
        if report.failed and test not in errors:
            outcomes[test], errors[test] = "failed", first_line(report.longreprtext)
        elif report.skipped and outcomes[test] == "passed" and not hasattr(report, "wasxfail"):
            outcomes[test] = "skipped"

    def pytest_sessionfinish() -> None:
        """Write what is known of all tests."""
        known = {"outcomes": outcomes, "errors": errors, "uncollected": uncollected}
        Path(os.environ["PEERS_FOLDER"], "outcomes").write_text(json.dumps(known), "utf-8")


def first_line(text: str) -> str:
    """Return the most informative line of an error: the last exception, or else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [
        line for line in lines if re.match(r"(E +)?[\w.]+(Error|Exception|Exit|Failure)\b", line)
    ]
    return (raised[-1].removeprefix("E ").strip() if raised else (lines or [""])[0])[:300]

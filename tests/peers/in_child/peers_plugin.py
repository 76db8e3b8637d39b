"""A pytest plugin that installs the drop-in, if there is one, and records every test."""

import os
from collections.abc import Hashable
from typing import Any

import pytest
from peers_drop_in import put_in_place
from peers_record import entries, first_line, write

if os.environ["PEERS_LIBRARY"] == "colossalai":
    from planners.dimspec.upstream import stubs

    stubs.install()  # without and with the drop-in

# Before any test is imported, so that all of them see the drop-in.
reached = put_in_place(os.environ["PEERS_DROP_IN"]) if "PEERS_DROP_IN" in os.environ else None

reached_before: Hashable = None
outcome = "passed"
error = ""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that have an outcome from an earlier process."""
    done = {entry["test"] for entry in entries() if "outcome" in entry}
    if done:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record files that cannot be collected."""
    if report.failed:
        write(uncollected=report.nodeid, error=first_line(report.longreprtext))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Record that a test has started."""
    global outcome, error, reached_before
    outcome, error = "passed", ""
    reached_before = reached() if reached else None
    write(test=nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """Record the worst outcome of a test's phases and subtests; an expected failure is a pass."""
    global outcome, error
    if report.failed and outcome != "failed":
        outcome, error = "failed", first_line(report.longreprtext)
    elif report.skipped and outcome == "passed" and not hasattr(report, "wasxfail"):
        outcome = "skipped"


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Record the outcome of a test."""
    if reached and reached() != reached_before:
        write(reached=nodeid)
    write(test=nodeid, outcome=outcome, error=error)

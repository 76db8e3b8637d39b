"""Fixtures: the server process that forks children, started once, and a folder for process ids."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy
from comparing import LONG, do_nothing
from processes import is_running

from harness.execution.child import start_job
from harness.measuring.jobs import start_server_for


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    """Start the server process that forks children, so that no budget includes its start."""
    start_server_for([toy.TOY])
    with start_job(do_nothing, memory_gib=8.0) as process:
        process.receive(LONG)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for process ids; processes that still run at the end are killed."""
    yield tmp_path
    for path in tmp_path.iterdir():
        if path.name in ("pid", "grandchild") and is_running(int(path.read_text())):
            os.kill(int(path.read_text()), signal.SIGKILL)

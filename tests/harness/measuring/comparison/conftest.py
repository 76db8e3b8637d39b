"""The process that children are forked from, started once, and a folder for process ids."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy
from comparing import LONG, do_nothing
from processes import is_running

from harness.execution.child import Child
from harness.measuring.jobs import start_server_for


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    """Start the process that children are forked from, so that no budget has to pay for it."""
    start_server_for([toy.TOY])
    with Child(do_nothing) as process:
        process.receive(LONG)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for process ids; what still runs at the end is stopped."""
    yield tmp_path
    for path in tmp_path.iterdir():
        if path.name in ("pid", "grandchild") and is_running(int(path.read_text())):
            os.kill(int(path.read_text()), signal.SIGKILL)

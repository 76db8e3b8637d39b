"""A fixture with a folder for process ids."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import is_running


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for process ids; processes that still run at the end are killed."""
    yield tmp_path
    for path in tmp_path.iterdir():
        if path.name in ("pid", "grandchild") and is_running(int(path.read_text())):
            os.kill(int(path.read_text()), signal.SIGKILL)

"""The file that a problem is captured in."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "problem.json"

"""A fixture with the path of the file for a captured problem."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "problem.json"

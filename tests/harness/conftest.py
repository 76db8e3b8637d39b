"""The helpers of these tests, which child processes import too: they get this `sys.path`."""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from fake_clock import FakeClock  # noqa: E402 - the path is set above


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()

"""A fixture with a clock that is moved by hand."""

import pytest
from fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()

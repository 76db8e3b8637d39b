"""A fixture for reports without figures, which take most of the time."""

import pytest
from made_up_results import blank_figures


@pytest.fixture
def undrawn():
    """Leave all figures blank."""
    with blank_figures():
        yield

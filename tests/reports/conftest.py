"""Reports whose figures nobody looks at need none."""

import pytest
from made_up_results import blank_figures


@pytest.fixture
def undrawn():
    """Leave all figures blank."""
    with blank_figures():
        yield

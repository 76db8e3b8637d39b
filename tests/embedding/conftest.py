"""Lets the tests in the rooms here import what lies beside this module."""

import pytest

from planners.embedding.search import warm_up


@pytest.fixture(autouse=True, scope="session")
def kernels_are_loaded() -> None:
    """Without them, torchrec's own search would plan small problems."""
    warm_up.compile_ahead((*warm_up.BEST_PLAN, *warm_up.BINS_2D))

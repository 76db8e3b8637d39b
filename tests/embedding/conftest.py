"""Loads all kernels before the tests; being here, it lets them import the helpers next to it."""

import pytest

from planners.embedding.search import warm_up


@pytest.fixture(autouse=True, scope="session")
def kernels_are_loaded() -> None:
    """Load them; otherwise torchrec's own search would plan small problems."""
    warm_up.compile_ahead((*warm_up.BEST_PLAN, *warm_up.BINS_2D))

"""Loads all kernels before the tests; its place lets tests import the helpers in this folder."""

import pytest

from planners.embedding.search import warm_up


@pytest.fixture(autouse=True, scope="session")
def kernels_are_loaded() -> None:
    """Load all kernels; without loaded kernels, torchrec's own search plans small problems."""
    warm_up.ready(warm_up.BEST_PLAN)

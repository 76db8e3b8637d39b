"""The proposals that torchrec rejects have the memory of the options, with many shards too."""

import numpy as np
import pytest
from small_problems import option

from planners.embedding.drop_in import compiled_search
from planners.embedding.drop_in.compiled_search import failed_proposals, least_memory
from planners.embedding.search.outcome import NotFound
from planners.embedding.search.space import search_space


def space():
    return search_space(
        [
            option(0, "device", (8, 0, 1.0), (4, 2, 1.0)),
            option(0, "host_columns", (5, 3, 2.0)),
            option(1, "device", (7, 1, 1.0)),
            option(1, "host_columns", (7, 0, 1.0)),
        ]
    )


@pytest.mark.parametrize("most", [0, 100])
def test_the_memory_of_each_option_is_that_of_its_shards(monkeypatch, most):
    monkeypatch.setattr(compiled_search, "MOST_SHARDS", most)
    proposals = failed_proposals(space(), NotFound(np.array([0, 2]), np.array([1, 3]), 2))
    hbm = [[sum(shard.storage.hbm for shard in o.shards) for o in row] for row in proposals]
    assert hbm == [[12, 7], [5, 7]]
    assert len(proposals[0][0].shards) == (2 if most else 1)


def test_the_least_memory_goes_by_hbm_and_then_by_host_memory():
    assert least_memory(space()).tolist() == [1, 3]

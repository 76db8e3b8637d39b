"""The new placement of a table is a possible one, and the best one if its shards are equal."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from small_problems import load, problems, ways

from planners.embedding.best_plan.parts import parts_of
from planners.embedding.explain.placement import Obstacle, replace
from planners.embedding.search.space import Load


def rating_with(space, placed_on, others, option, ranks):
    """Return the rating of a plan with this placement, or None if it exceeds the memory."""
    own = load(space, placed_on, option, ranks)
    there = own[:, 4] > 0
    if ((others.used + own[:, 1:4])[there] > placed_on.storage[there]).any():
        return None
    return float((others.perf + own[:, 0]).max())


@given(problems(), st.data())
def test_it_is_a_placement_that_exists_and_the_best_of_equal_shards(problem, data):
    space, placed_on = problem
    option = data.draw(st.integers(0, len(space.options) - 1))
    perf = data.draw(
        st.lists(st.integers(0, 8), min_size=placed_on.ranks, max_size=placed_on.ranks)
    )
    used = np.full((placed_on.ranks, 3), data.draw(st.integers(0, 2)))
    others = Load(np.array(perf) / 10, used.copy())
    ratings = {
        ranks: rating
        for ranks in ways(space, placed_on, option)
        if (rating := rating_with(space, placed_on, others, option, ranks)) is not None
    }
    shards = space.estimates_of(option)
    are_equal = len(np.unique(shards)) == 1
    try:
        placed, now = replace(space, placed_on, parts_of(space, placed_on), others, option)
    except Obstacle as obstacle:
        placed, why = None, obstacle
    assert others.perf.tolist() == [ms / 10 for ms in perf]
    assert (others.used == used).all()
    if placed is None:
        assert why.why_not
        assert not ratings or not are_equal
        # Nothing at all goes onto a rank that is overfull without it.
        overfull = why.needed_bytes == why.free_bytes == 0
        assert not why.lacking or why.needed_bytes > why.free_bytes or overfull
        return
    rating = ratings[tuple(placed.tolist())]
    assert now.perf.max() == pytest.approx(rating)
    assert rating >= min(ratings.values()) * (1 - 1e-12)
    if are_equal:
        assert rating == pytest.approx(min(ratings.values()))

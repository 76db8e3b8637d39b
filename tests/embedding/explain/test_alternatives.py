"""The new placement of a table is a possible one, and the best one if its shards are equal."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from small_problems import load, problems, ways

from planners.embedding.best_plan.parts import parts_of
from planners.embedding.explain.alternatives import placed
from planners.embedding.search.space import Load


@given(problems(), st.data())
def test_a_placement_is_possible_and_the_best_of_equal_shards(problem, data):
    space, on = problem
    option = data.draw(st.integers(0, len(space.options) - 1))
    perf = data.draw(st.lists(st.integers(0, 8), min_size=on.ranks, max_size=on.ranks))
    used = np.full((on.ranks, 3), data.draw(st.integers(0, 2)))
    others = Load(np.array(perf) / 10, used.copy())
    possible = []
    for ranks in ways(space, on, option):
        own = load(space, on, option, ranks)
        there = own[:, 4] > 0
        if ((used + own[:, 1:4])[there] <= on.storage[there]).all():
            possible.append(Load(others.perf + own[:, 0], used + own[:, 1:4].astype(int)))
    are_equal = len(np.unique(space.estimates_of(option))) == 1
    now = placed(space, on, parts_of(space, on), others, option)
    assert others.perf.tolist() == [ms / 10 for ms in perf]
    assert (others.used == used).all()
    if not isinstance(now, Load):
        assert now["why_not"]
        assert not possible or not are_equal
        if now.get("lacking"):
            needed, free = now["needed_bytes"], now["free_bytes"]
            # Nothing at all goes onto a rank that is overfull without it.
            assert needed > free or needed == free == 0
        return
    assert any(
        (now.used == other.used).all() and now.perf == pytest.approx(other.perf)
        for other in possible
    )
    if are_equal:
        assert now.rating == pytest.approx(min(other.rating for other in possible))

"""Limits the work of the search for the best plan, and stops the clock."""

from unittest import mock

from hypothesis import strategies as st

randoms = st.randoms(use_true_random=False)

# As little work as in a hundredth of a second; linear programmes are timed by the solver, and have
# all the time that they need.
little_work = mock.patch("planners.embedding.best_plan.search.WORK_PER_SECOND", 2e4)


def standing_still():
    return 0.0

"""A process that has planned can be forked, and its child can plan too."""

import os
import time

import highspy
import pytest
from built_problem import problem
from small_problems import devices as two_ranks, option

from planners.embedding.best_plan import linear
from planners.embedding.best_plan.search import best_plan
from planners.embedding.quality import arrays
from planners.embedding.search.space import search_space

WAIT_S = 60


def test_a_child_of_a_process_that_has_solved_integer_programmes_finds_the_same_plan():
    space, devices = arrays(problem("dlrm-856[tables=30,seed=1]"))
    rating = best_plan(space, devices).rating
    child = os.fork()
    if child == 0:
        os._exit(0 if best_plan(space, devices).rating == rating else 1)
    for _ in range(10 * WAIT_S):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended, "the child hangs"
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("name", ["run", "getDualRay"])
def test_a_fork_waits_for_whatever_solves(name, monkeypatch):
    """The lock that a fork waits for is held during each call of HiGHS that may solve."""
    solve, locked = getattr(highspy.Highs, name), []

    def noting(solver):
        locked.append(linear.solving.locked())
        return solve(solver)

    monkeypatch.setattr(highspy.Highs, name, noting)
    best_plan(*arrays(problem("synthetic[tables=12,seed=3,memory=tight]", gpus=8)))
    tables = [option(table, "device", (6, 0, 1.0)) for table in range(4)]
    best_plan(search_space(tables), two_ranks((9, 9), (9, 9)))  # without enough memory
    assert locked
    assert all(locked)

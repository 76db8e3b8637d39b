"""A process that has planned can be forked, and its child can plan too."""

import os
import time

from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.best_plan.search import best_plan
from planners.embedding.problem import build
from planners.embedding.quality import arrays

PROBLEM = "dlrm-856[tables=30,seed=1]"
WAIT_S = 60


def test_a_child_of_a_process_that_has_solved_integer_programmes_finds_the_same_plan():
    space, devices = arrays(build(WorkloadSpec.parse(PROBLEM), find_topology("dgx_a100_80gb", 16)))
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

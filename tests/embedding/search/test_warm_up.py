"""Compiling ahead: after it, no search compiles anything."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from random import Random

import numpy as np
from random_options import random_case

from planners.embedding.search.best_plan.exact import branching
from planners.embedding.search.best_plan.local import rounds
from planners.embedding.search.same_plan import dynamic_programming
from planners.embedding.search.same_plan.placing import rows
from planners.embedding.search.best_plan.near.moves import Moves
from planners.embedding.search.best_plan.near.search import NearSearch
from planners.embedding.search.best_plan.search import best_plan
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import devices_of, search_space
from planners.embedding.search.warm_up import warm_up

USED = (
    branching.begin,
    branching.search,
    dynamic_programming._fill_bins,
    dynamic_programming._trace,
    rows.place_rows,
    rounds.complete,
    rounds.construct,
    rounds.improve,
)


def compiled():
    return [len(each.signatures) for each in USED]


warm_up()
assert compiled() == [1] * len(USED), compiled()
for seed in range(10):
    case = random_case(Random(seed), towers=False)
    space, devices = search_space(case.options), devices_of(case.topology)
    best_plan(space, devices, Deadline(0.01))
    if NearSearch.can_search(space, devices):
        nowhere = np.full(len(space.estimate), -1)
        search = NearSearch(space, devices, lambda _: Moves(nowhere, -nowhere), Deadline(0.01))
        search.search(0)
assert compiled() == [1] * len(USED), compiled()
"""


def test_no_search_compiles_what_was_not_compiled_ahead():
    here = Path(__file__).parents[1]
    path = [str(here), str(here.parents[1])]
    code = f"import sys; sys.path[:0] = {path!r}\n{SCRIPT}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Compiled kernels do what Python does, to the last bit."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest
from random_rows import placements
from small_problems import searched

from planners.embedding.best_plan.local.rounds import _search
from planners.embedding.best_plan.local.state import NOWHERE


def done() -> dict:
    """Return whether kernels are compiled, where they place, and all bits that a search leaves."""
    state = searched(seed=3, work=200_000)
    return {
        "compiled": not isinstance(_search, FunctionType),
        "placements": [placements(seed) for seed in range(50)],
        "rating": state.best_rating,
        "state": hashlib.sha256(b"".join(map(bytes, state))).hexdigest(),
    }


@pytest.fixture(scope="module")
def compiled() -> dict:
    return done()


@pytest.fixture(scope="module")
def plain() -> dict:
    """What a process without a compiler does."""
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here, here.parents[0], here.parents[2])))
    said = subprocess.run(
        [sys.executable, __file__], check=True, capture_output=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
    )  # fmt: skip
    return json.loads(said.stdout.splitlines()[-1])


def test_one_is_compiled_and_the_other_is_not(compiled, plain):
    assert compiled["compiled"]
    assert not plain["compiled"]


def test_proposals_are_placed_alike(compiled, plain):
    assert compiled["placements"] == plain["placements"]


def test_the_local_search_leaves_the_same_bits(compiled, plain):
    assert compiled["rating"] < NOWHERE
    assert (compiled["rating"], compiled["state"]) == (plain["rating"], plain["state"])


if __name__ == "__main__":
    print(json.dumps(done()))

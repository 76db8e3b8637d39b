"""Compiled kernels give the same results as plain Python, to the last bit."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

from random_rows import placements
from small_problems import searched

from planners.embedding.best_plan.insertion import BEST, NOWHERE
from planners.embedding.best_plan.rounds import search


def done() -> dict:
    """Return whether kernels are compiled, their placements, and a hash of a search's state."""
    state = searched(seed=3, work=200_000)
    return {
        "compiled": not isinstance(search, FunctionType),
        "placements": [placements(seed) for seed in range(50)],
        "rating": float(state.figures[BEST]),
        "state": hashlib.sha256(b"".join(map(bytes, state))).hexdigest(),
    }


def test_compiled_kernels_place_and_search_as_python_does_to_the_last_bit():
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here, here.parents[0], here.parents[2])))
    process = subprocess.run(
        [sys.executable, __file__], check=True, capture_output=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
    )  # fmt: skip
    plain, compiled = json.loads(process.stdout.splitlines()[-1]), done()
    assert compiled.pop("compiled")
    assert not plain.pop("compiled")
    assert compiled["rating"] < NOWHERE
    assert json.loads(json.dumps(compiled)) == plain


if __name__ == "__main__":
    print(json.dumps(done()))

"""Compiled kernels give the same results as plain Python, to the last bit."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

from random_rows import placements
from small_problems import constructed, searched, varied

from planners.embedding.best_plan.local.exchanges import balance
from planners.embedding.best_plan.local.rounds import _search
from planners.embedding.best_plan.local.state import NOWHERE


def done() -> dict:
    """Return whether kernels are compiled, their placements, and a hash of a search's state."""
    state = searched(seed=3, work=200_000)
    tables, balanced = constructed(*varied(), seed=3)
    balance(tables, balanced, 1, 100_000, 0.0, True)
    return {
        "compiled": not isinstance(_search, FunctionType),
        "placements": [placements(seed) for seed in range(50)],
        "rating": state.best_rating,
        "state": hashlib.sha256(b"".join(map(bytes, state))).hexdigest(),
        "balanced": hashlib.sha256(b"".join(map(bytes, balanced))).hexdigest(),
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

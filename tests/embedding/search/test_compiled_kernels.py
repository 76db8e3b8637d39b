"""Kernels do what plain Python does; machine code is kept by a key of all that affects it."""

import hashlib
import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import FunctionType, SimpleNamespace

import numba
import numpy as np
import pytest
from random_options import placements
from small_problems import NO_TABLES, constructed, varied

from planners.embedding.best_plan.insertion import Figure
from planners.embedding.best_plan.rounds import search
from planners.embedding.search import compiling


def done() -> dict:
    """Return whether kernels are compiled, their placements, and a hash of a search's state."""
    tables, state = constructed(*varied(), seed=3, doublings=1)
    search(tables, state, NO_TABLES, NO_TABLES, 200_000, 1.0, 0.0)
    return {
        "compiled": not isinstance(search, FunctionType),
        "placements": [placements(seed) for seed in range(50)],
        "rating": float(state.figures[Figure.BEST]),
        "state": hashlib.sha256(pickle.dumps(state)).hexdigest(),
    }


def test_compiled_kernels_place_and_search_as_python_does_to_the_last_bit():
    """Plain Python runs in a process of its own."""
    here = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (here, here.parents[1])))
    process = subprocess.run(
        [sys.executable, __file__], check=True, capture_output=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
    )  # fmt: skip
    plain, compiled = json.loads(process.stdout.splitlines()[-1]), done()
    assert compiled.pop("compiled")
    assert not plain.pop("compiled")
    assert np.isfinite(compiled["rating"])
    assert json.loads(json.dumps(compiled)) == plain


@pytest.mark.parametrize(
    "values", [np.arange(6.0)[::2], np.arange(3), np.arange(3, dtype=np.float32)]
)
def test_other_arrays_than_a_kernel_is_compiled_for_are_refused(values):
    """Arrays with strides, of integers or of single precision are not read as 64-bit floats."""
    tables, state = constructed(*varied())
    with pytest.raises(numba.TypingError, match="Cannot determine Numba type"):
        search(tables._replace(total=values), state, NO_TABLES, NO_TABLES, 1, 1.0, 0.0)


@pytest.mark.parametrize("changed", ["kernels", "constants"])
def test_the_key_changes_with_the_sources_of_a_module_and_its_imports(
    changed, tmp_path, monkeypatch
):
    """Even a changed comment is another key."""
    sources = {"kernels": "from planners.constants import FACTOR\n", "constants": "FACTOR = 2\n"}
    for name, source in sources.items():
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        monkeypatch.setitem(sys.modules, f"planners.{name}", SimpleNamespace(__file__=str(path)))
    digests = []
    for _ in range(2):
        compiling._digest.cache_clear()
        digests.append(compiling._digest("planners.kernels"))
        (tmp_path / f"{changed}.py").write_text(f"{sources[changed]}# otherwise\n")
    assert digests[0] != digests[1]


def keep_in(monkeypatch, *folders: Path) -> compiling._Kept:
    monkeypatch.setattr(compiling, "_folders", lambda: [*folders])
    return compiling._Kept(compiling.load)


def test_an_installation_that_cannot_be_written_is_read_and_not_written(tmp_path, monkeypatch):
    """New machine code goes to the user's folder."""
    (tmp_path / "file").touch()
    installation, users = tmp_path / "installation", tmp_path / "users"
    kept = keep_in(monkeypatch, tmp_path / "file" / "folder", users)
    assert compiling.kept_folder() == users
    assert kept.path("signature") is None
    kept = keep_in(monkeypatch, installation, users)
    installation.mkdir()
    (installation / kept._name("signature")).touch()
    assert kept.path("signature") == installation / kept._name("signature")


def test_a_full_disk_is_logged_and_leaves_nothing_behind(tmp_path, monkeypatch, caplog):
    """The kernel is used all the same."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiling.Path, "rename", full)
    with caplog.at_level(logging.WARNING, "shardbench"):
        result = SimpleNamespace(_reduce=lambda: "machine code")
        keep_in(monkeypatch, tmp_path).save_overload("signature", result)
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    print(json.dumps(done()))

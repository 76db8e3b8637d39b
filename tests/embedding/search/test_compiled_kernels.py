"""Machine code is cached by a key of everything that affects it; kernels read arrays in place."""

import logging
import sys
from pathlib import Path
from types import GenericAlias, SimpleNamespace
from typing import NamedTuple

import numba
import numpy as np
import pytest

from planners.embedding.search import compiling
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Ints


@pytest.mark.parametrize("changed", ["kernels", "constants"])
def test_the_key_changes_with_the_sources_of_a_module_and_its_imports(
    changed, tmp_path, monkeypatch
):
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
    (tmp_path / "file").touch()
    installation, users = tmp_path / "installation", tmp_path / "users"
    kept = keep_in(monkeypatch, tmp_path / "file" / "folder", users)
    assert compiling.kept_folder() == users
    assert kept.path("signature") is None
    kept = keep_in(monkeypatch, installation, users)
    installation.mkdir()
    (installation / kept._name("signature")).touch()
    assert kept.path("signature") == installation / kept._name("signature")


class _Result:
    def _reduce(self) -> str:
        return "machine code"


def test_a_full_disk_is_logged_and_leaves_nothing_behind(tmp_path, monkeypatch, caplog):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiling.Path, "rename", full)
    with caplog.at_level(logging.WARNING, "shardbench"):
        keep_in(monkeypatch, tmp_path).save_overload("signature", _Result())
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []


class Inner(NamedTuple):
    values: Floats
    factor: int


class Outer(NamedTuple):
    order: Ints
    inner: Inner


def raise_at(inner: Inner, index: int) -> float:
    inner.values[index] *= inner.factor
    return float(inner.values[index])


def total(outer: Outer) -> float:
    found = 0.0
    for index in outer.order:
        found += raised(outer.inner, index)
    return found


raised = subroutine(raise_at)


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return kernel(total)


def test_nested_records(compiled):
    values = np.array([1.0, 2.0, 3.0])
    assert compiled(Outer(np.array([2, 0, 2]), Inner(values, 10))) == 30 + 10 + 300
    assert values.tolist() == [10.0, 2.0, 300.0]


@pytest.mark.parametrize(
    "values", [np.arange(6.0)[::2], np.arange(3), np.arange(3, dtype=np.float32)]
)
def test_other_arrays_are_refused(compiled, values):
    with pytest.raises(numba.TypingError, match="Cannot determine Numba type"):
        compiled(Outer(np.arange(3), Inner(values, 1)))


def test_array_types_of_numpy_2_5_and_of_older_releases_are_the_same():
    of_numpy_2_5 = GenericAlias(np.ndarray, (np.int64,))
    assert compiling._numba_type(of_numpy_2_5) == compiling._numba_type(Ints)

"""Machine code is cached by a key of everything that affects it; kernels read arrays in place."""

import logging
from pathlib import Path
from types import GenericAlias
from typing import NamedTuple

import numba
import numpy as np
import pytest

from planners.embedding.search import compiling
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Ints

SOURCE = """
from enum import IntEnum
from typing import NamedTuple

from planners.embedding.search.space import Floats, Ints


class Kind(IntEnum):
    FIRST = 1


class Figures(NamedTuple):
    values: Floats


FACTOR = 2.0


def halved(value: float) -> float:
    return value / FACTOR


def unused(value: float) -> float:
    return value


def total(figures: Figures, order: Ints) -> float:
    found = 0.0
    for index in order:
        found += halved(figures.values[index]) + Kind.FIRST
    return found
"""


def key(source: str, module: str = "a_module") -> str:
    names: dict = {"__name__": module}
    exec(source, names)
    return compiling._file_name(names["total"], "signature")


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("return value\n", "return value + 1\n", False),  # of a function that is not called
        ("    found = 0.0\n", "    # why\n    found = 0.0\n", False),
        ("value / FACTOR", "value * FACTOR", True),
        ("FACTOR = 2.0", "FACTOR = 2.5", True),
        ("FIRST = 1", "FIRST = 3", True),
        ("found = 0.0", "found = 1.0", True),
        ("values: Floats", "values: Ints", True),
    ],
)
def test_the_key_changes_with_used_code_alone(before, after, changes):
    assert before in SOURCE
    assert (key(SOURCE.replace(before, after)) != key(SOURCE)) == changes


def test_the_key_changes_with_the_module_that_machine_code_names():
    assert key(SOURCE, "another_module") != key(SOURCE)


def test_the_key_changes_with_the_compiling_code(tmp_path, monkeypatch):
    before = key(SOURCE)
    changed = tmp_path / "records.py"
    changed.write_text("otherwise")
    monkeypatch.setattr(compiling.records, "__file__", str(changed))
    compiling._compiler.cache_clear()
    assert key(SOURCE) != before
    monkeypatch.undo()
    compiling._compiler.cache_clear()
    assert key(SOURCE) == before


def keep_in(monkeypatch, *folders: Path) -> compiling._Kept:
    monkeypatch.setattr(compiling, "_folders", lambda: [*folders])
    return compiling._Kept(compiling._file_name)


@pytest.mark.parametrize("pickled", [b"cno_such_module\nname\n.", b"cos\nno_such_name\n."])
def test_machine_code_that_names_a_lost_module_is_compiled_again(pickled, tmp_path, monkeypatch):
    kept = keep_in(monkeypatch, tmp_path)
    (tmp_path / kept._name("signature")).write_bytes(pickled)
    assert kept.load_overload("signature", compiling.cpu_target.target_context) is None


def test_the_default_folders_are_next_to_the_source_and_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    installation, users = compiling._folders()
    assert installation.parent == Path(compiling.__file__).parent
    assert users.parent == tmp_path


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

"""Machine code is kept under a key of all that it is made from, and of nothing else."""

import logging
from pathlib import Path

import pytest

from planners.embedding.search import compiling

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
    ("before", "after", "other"),
    [
        ("return value\n", "return value + 1\n", False),  # of what is not called
        ("    found = 0.0\n", "    # why\n    found = 0.0\n", False),
        ("value / FACTOR", "value * FACTOR", True),
        ("FACTOR = 2.0", "FACTOR = 2.5", True),
        ("FIRST = 1", "FIRST = 3", True),
        ("found = 0.0", "found = 1.0", True),
        ("values: Floats", "values: Ints", True),
    ],
)
def test_the_key_is_another_one_where_used_code_is(before, after, other):
    assert before in SOURCE
    assert (key(SOURCE.replace(before, after)) != key(SOURCE)) == other


def test_the_key_changes_with_the_module_that_machine_code_names():
    assert key(SOURCE, "another_module") != key(SOURCE)


@pytest.mark.parametrize("pickled", [b"cno_such_module\nname\n.", b"cos\nno_such_name\n."])
def test_machine_code_that_names_a_lost_module_is_compiled_again(pickled, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "_folders", lambda: [tmp_path])
    kept = compiling._Kept(compiling._file_name)
    (tmp_path / kept._name("signature")).write_bytes(pickled)
    assert kept.load_overload("signature", compiling.cpu_target.target_context) is None


def test_the_key_is_another_one_where_kernels_are_compiled_otherwise(tmp_path, monkeypatch):
    before = key(SOURCE)
    changed = tmp_path / "records.py"
    changed.write_text("otherwise")
    compiling._compiler.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(compiling.records, "__file__", str(changed))
        assert key(SOURCE) != before
    compiling._compiler.cache_clear()
    assert key(SOURCE) == before


def test_without_a_folder_of_its_own_it_is_kept_beside_the_source_or_by_the_user(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    beside, users = compiling._folders()
    assert beside.parent == Path(compiling.__file__).parent
    assert users.parent == tmp_path


def test_an_installation_that_cannot_be_written_is_read_and_not_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    installation, users = tmp_path / "file" / "folder", tmp_path / "users"
    monkeypatch.setattr(compiling, "_folders", lambda: [installation, users])
    assert compiling.kept_folder() == users
    kept = compiling._Kept(compiling._file_name)
    assert kept.path("signature") is None
    (tmp_path / "installation").mkdir()
    monkeypatch.setattr(compiling, "_folders", lambda: [tmp_path / "installation", users])
    (tmp_path / "installation" / kept._name("signature")).touch()
    assert kept.path("signature") == tmp_path / "installation" / kept._name("signature")


class _Result:
    def _reduce(self) -> str:
        return "machine code"


def test_a_full_disk_is_said_and_leaves_nothing_behind(tmp_path, monkeypatch, caplog):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiling, "_folders", lambda: [tmp_path])
    monkeypatch.setattr(compiling.Path, "rename", full)
    with caplog.at_level(logging.WARNING, "shardbench"):
        compiling._Kept(compiling._file_name).save_overload("signature", _Result())
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []

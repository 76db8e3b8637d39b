"""Capturing: the written file, its name and content, and that errors never stop the script."""

import errno
import gzip
import os
import string
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from toy import TOY

from harness.contract import Abilities
from harness.contract.registry import Registry
from harness.contract.workloads import Names, read_captured
from harness.model.errors import ShardbenchError, UsageError
from harness.planning import capture as capture_module
from harness.planning.capture import capture

NAMES = st.lists(st.text(max_size=8), max_size=30)


class Planner:
    """A planner that a script calls; during a capture, the toy family records its calls."""

    heard: list | None = None

    def plan(self, items: list[str]) -> int:
        if Planner.heard is not None:
            Planner.heard.extend(items)
        return len(items)


def family(content=None):
    """Return the toy family with a planner that can be captured."""

    @contextmanager
    def capturing(names):
        Planner.heard = heard = []
        try:
            yield lambda: content() if content else {"items": list(names.written(heard).values())}
        finally:
            Planner.heard = None

    return replace(TOY, variants=dict(TOY.variants), abilities=Abilities(capture=capturing))


@pytest.fixture
def captures(monkeypatch):
    """Return a function that makes `capture` find the toy family, with `content` if given."""

    def with_content(content=None, **changes):
        found = replace(family(content), **changes)
        monkeypatch.setattr(capture_module, "load_registry", lambda: Registry([found]))

    with_content()
    return with_content


def plan(*items: str) -> None:
    Planner().plan(list(items))


@pytest.mark.parametrize("name", ["captured.json", "captured.json.gz"])
def test_what_was_planned_is_read_again(tmp_path, captures, name):
    """Also after an error in the block, and equal problems make equal files."""
    path = tmp_path / name
    with pytest.raises(KeyError), capture("toy", path):  # noqa: PT012 - inside is the body
        plan("b", "a")
        raise KeyError("its own")
    assert read_captured(path, "toy") == {"items": ["a", "b"]}
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert [each.name for each in tmp_path.iterdir()] == [name]
    before = path.read_bytes()
    with capture("toy", str(path)):
        plan("b", "a")
    assert path.read_bytes() == before


def test_hashes_of_one_key_are_one_and_of_others_are_others():
    def digest(names: Names) -> str:
        return names.written(["x"])["x"].partition("_")[2]

    assert digest(Names(True, "k")) == digest(Names(True, "k"))
    assert len({digest(Names(True, key)) for key in ("k", "l", "", "")}) == 4


@settings(max_examples=15)
@given(NAMES)
def test_written_names_are_distinct_and_in_order(names):
    written = Names(True, "key").written(names)
    assert set(written) == set(names)
    assert [written[name] for name in sorted(set(names))] == sorted(written.values())
    assert len(set(written.values())) == len(set(names))
    assert all(set(each) <= set(string.hexdigits.lower() + "_") for each in written.values())
    assert Names().written(names) == {name: name for name in names}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("c.txt", "must end in .json or .json.gz"),
        ("c.json/", "cannot be written"),
        ("missing/c.json", "cannot be written"),
    ],
)
def test_a_bad_path_is_refused_before_anything_is_run(tmp_path, captures, path, said):
    (tmp_path / "c.json").mkdir()
    ran = []
    with pytest.raises(UsageError, match=said), capture("toy", tmp_path / path):
        ran.append(1)
    assert not ran


def test_a_family_that_cannot_be_captured_is_refused(tmp_path, captures):
    captures(abilities=Abilities())
    with pytest.raises(UsageError, match="cannot be captured"), capture("toy", tmp_path / "c.json"):
        raise AssertionError
    with pytest.raises(UsageError, match="Unknown family"), capture("toi", tmp_path / "c.json"):
        raise AssertionError
    captures(requires=("no_such_module",))
    with (
        pytest.raises(UsageError, match="no_such_module is not installed"),
        capture("toy", tmp_path / "c.json"),
    ):
        raise AssertionError


def test_a_full_disk_only_warns_and_keeps_what_was_there(tmp_path, captures, monkeypatch):
    path = tmp_path / "c.json"
    path.write_text("before")
    done = []

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = r"c\.json was not written: OSError: .*No space left on device\."
    with pytest.warns(UserWarning, match=said), capture("toy", path):  # noqa: PT031 - inside is the body
        plan("a")
        done.append(1)
    assert done
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["c.json"]


def _refuses(error):
    def content():
        raise error

    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (_refuses(ShardbenchError("No planner was called.")), "No planner was called."),
        (_refuses(TypeError("of one's own")), "TypeError: of one's own"),
        (lambda: {"perf": float("nan")}, "not JSON compliant"),
        (lambda: {"perf": object()}, "not JSON serializable"),
    ],
)
def test_what_cannot_be_written_down_only_warns(tmp_path, captures, content, said):
    captures(content)
    with pytest.warns(UserWarning, match=said), capture("toy", tmp_path / "c.json"):
        plan("a")
    assert not (tmp_path / "c.json").exists()


def test_where_another_process_captures_nothing_is_written_or_said(tmp_path, captures):
    captures(lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with capture("toy", tmp_path / "c.json"):
            plan("a")
    assert not (tmp_path / "c.json").exists()


def refused(path: Path, family: str = "toy") -> str:
    with pytest.raises(UsageError) as error:
        read_captured(path, family)
    said = str(error.value)
    assert said.endswith(".")
    assert str(path) in said
    return said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not hold JSON text"),
        (b'{"shardbench"', "does not hold JSON text"),
        (b"[" * 100_000, "does not hold JSON text"),
        (b"[1]", "must hold one JSON object"),
        (b"{}", "is no file that shardbench.capture wrote"),
        (b'{"shardbench": {}}', "is no file that shardbench.capture wrote"),
        (b'{"shardbench": {"family": "x"}}', "captured from family 'x', not from 'toy'"),
        (b'{"shardbench": {"family": "toy"}}', "is of version None; this shardbench reads 1"),
        (b'{"shardbench": {"family": "toy", "version": true}}', "is of version True"),
    ],
)
@pytest.mark.parametrize("name", ["c.json", "c.json.gz"])
def test_damaged_foreign_and_later_files_are_refused(tmp_path, content, said, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert said in refused(path)

"""Capturing: the written file, its names, and that errors never stop the script."""

import errno
import gzip
import os
import string
import warnings
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from toy import TOY

from harness.contract import Abilities
from harness.contract.registry import Registry
from harness.contract.workloads import Names, read_captured
from harness.model.errors import UsageError
from harness.planning import capture as capture_module
from harness.planning.capture import capture


class Planner:
    """A planner that a script calls; during a capture, the toy family records its calls."""

    heard: list | None = None

    def plan(self, *items: str) -> None:
        if Planner.heard is not None:
            Planner.heard.extend(items)


@pytest.fixture
def captures(monkeypatch):
    """Return a function that makes `capture` find the toy family, with `content` if given."""

    def with_content(content=None, **changes):
        @contextmanager
        def capturing(names):
            Planner.heard = heard = []
            try:
                yield content or (lambda: {"items": list(names.written(heard).values())})
            finally:
                Planner.heard = None

        abilities = {"abilities": Abilities(capture=capturing), **changes}
        family = replace(TOY, variants=dict(TOY.variants), **abilities)
        monkeypatch.setattr(capture_module, "load_registry", lambda: Registry([family]))

    with_content()
    return with_content


@pytest.mark.parametrize("name", ["captured.json", "captured.json.gz"])
def test_what_was_planned_is_read_again_also_after_an_error(tmp_path, captures, name):
    """Captured files are the same each time, and packed if their name says so."""
    path = tmp_path / name
    with pytest.raises(KeyError), capture("toy", path):  # noqa: PT012 - inside is the body
        Planner().plan("b", "a")
        raise KeyError("its own")
    assert read_captured(path, "toy") == {"items": ["a", "b"]}
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    before = path.read_bytes()
    with capture("toy", str(path)):
        Planner().plan("b", "a")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=15)
@given(st.lists(st.text(max_size=8), max_size=30))
def test_hashed_names_are_distinct_in_order_and_those_of_their_key(names):
    """Hashed names sort as the names do, and say nothing of them without the key."""
    written = Names(True, "key").written(names)
    assert [written[name] for name in sorted(set(names))] == sorted(written.values())
    assert len(set(written.values())) == len(set(names)) == len(written)
    assert set("".join(written.values())) <= set(string.hexdigits.lower() + "_")
    assert Names(True, "key").written(names) == written
    assert not names or Names(True).written(names) != written
    assert Names().written(names) == {name: name for name in names}


@pytest.mark.parametrize(
    ("family", "path", "changes", "reason"),
    [
        ("toy", "c.txt", {}, "must end in .json or .json.gz"),
        ("toy", "c.json/", {}, "cannot be written"),
        ("toy", "missing/c.json", {}, "cannot be written"),
        ("toi", "d.json", {}, "Unknown family"),
        ("toy", "d.json", {"abilities": Abilities()}, "cannot be captured"),
        ("toy", "d.json", {"requires": ("no_such_module",)}, "no_such_module is not installed"),
        ("toy", "d.json", {"abilities": Abilities(capture="no_such:C")}, "no_such is not inst"),
    ],
)
def test_what_cannot_be_captured_is_refused_before_the_block(
    tmp_path, captures, family, path, changes, reason
):
    """The script is not run for nothing."""
    (tmp_path / "c.json").mkdir()
    captures(**changes)
    with pytest.raises(UsageError, match=reason), capture(family, tmp_path / path):
        raise AssertionError


def test_a_full_disk_only_warns_and_keeps_the_existing_file(tmp_path, captures, monkeypatch):
    """A capture never stops the script."""
    path = tmp_path / "c.json"
    path.write_text("before")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    warning = r"c\.json was not written: OSError: .*No space left on device\."
    with pytest.warns(UserWarning, match=warning), capture("toy", path):
        Planner().plan("a")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def raising() -> None:
    raise TypeError("of one's own")


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        (raising, "TypeError: of one's own"),
        (lambda: {"perf": float("nan")}, "not JSON compliant"),
        (lambda: None, None),  # another process captures
    ],
)
def test_without_a_writable_problem_nothing_is_written(tmp_path, captures, content, warning):
    """A problem that cannot be written is a warning."""
    captures(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with capture("toy", tmp_path / "c.json"):
            Planner().plan("a")
    assert len(caught) == (warning is not None)
    assert all(warning in str(each.message) for each in caught)
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not hold JSON text"),
        (b"[1]", "must hold one JSON object"),
        (b'{"shardbench": {}}', "is no file that shardbench.capture wrote"),
        (b'{"shardbench": {"family": "x"}}', "captured from family 'x', not from 'toy'"),
        (b'{"shardbench": {"family": "toy"}}', "is of version None; this shardbench reads 1"),
    ],
)
def test_damaged_foreign_and_later_files_are_refused(tmp_path, content, reason):
    """The sentence names the file, also if it is packed."""
    for name, written in (("c.json", content), ("c.json.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(written)
        with pytest.raises(UsageError, match=rf"{name}.*{reason}"):
            read_captured(tmp_path / name, "toy")

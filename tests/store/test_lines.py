"""Files of lines: whatever happens to a writer or to a file, whole lines stay and can be read."""

import multiprocessing
import resource
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Struct

from harness.model.errors import ShardbenchError
from harness.store.lines import Entry, Store, hold


class Note(Struct, frozen=True):
    text: str
    value: float | None = None


class NoteStore(Store[Note]):
    shared: ClassVar = {"text": ["text"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def store(path: Path) -> Store[Note]:
    return Store(path, "note", Note)


def add(path: Path, *texts: str) -> None:
    store(path).add(*(Entry(text[:9], "k", Note(text)) for text in texts))


def texts(path: Path) -> list[str]:
    return [entry.value.text for entry in store(path).entries]


def test_values_are_read_as_they_were_added_by_kind(path):
    """Several kinds of values share a file, to which lines are only added."""
    entries = [Entry("1", "a.b", Note("first — “é”\n", 0.5)), Entry("2", "", Note("second"))]
    kept = store(path)
    kept.add(entries[0])
    before = path.read_bytes()
    kept.add(entries[1])
    Store(path, "other", Note).add(Entry("3", "", Note("third")))
    assert path.read_bytes().startswith(before)
    assert kept.entries == store(path).entries == entries
    assert [entry.id for entry in Store(path, "other", Note).entries] == ["3"]


def test_shared_fields_are_written_once_and_can_be_read_back(path):
    """Lines without the line that they refer to are damaged."""
    kept = NoteStore(path, "note", Note)
    kept.add(Entry("1", "", Note("same", 1.0)), Entry("2", "", Note("same", 2.0)))
    NoteStore(path, "note", Note).add(Entry("3", "", Note("same", 3.0)))
    assert path.read_text().count("same") == 1
    read = NoteStore(path, "note", Note)
    assert [(entry.value.text, entry.value.value) for entry in read.entries] == [
        *(("same", 1.0), ("same", 2.0), ("same", 3.0))
    ]
    lines = path.read_bytes().split(b"\n", 1)
    path.write_bytes(lines[1])
    assert [damage.why[:34] for damage in NoteStore(path, "note", Note).damaged] == [
        "is no note: no line above has the "
    ] * 3


@settings(max_examples=30)
@given(st.lists(st.text(), min_size=1, max_size=4), st.data())
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path_factory, written, data):
    """A later writer goes on after the last whole line."""
    path = tmp_path_factory.mktemp("cut") / "lines.jsonl"
    for text in written:
        add(path, text)
    kept, content = texts(path), path.read_bytes()
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = kept[: sum(end <= cut for end in ends)]  # a line end alone may be missing
    assert texts(path) == whole
    add(path, "last")
    assert texts(path) == [*whole, "last"]


DAMAGED = [
    *(b"{", b"not json", b"3", b"null", b"{}", b"[" * 100_000, b"\xff\xfe", b"\x00" * 40),
    *(b'{"kind": 3}', b'{"kind": "note"}', b'{"kind": "note", "payload": {"text": 3}}'),
    b'{"kind": "note", "payload": {"text": "a", "value": NaN}}',
]


@pytest.mark.parametrize("line", DAMAGED)
def test_damaged_lines_are_named_left_out_and_moved_aside_byte_for_byte(path, line):
    """Nothing is lost by a repair."""
    add(path, "a")
    path.write_bytes(line + b"\n" + path.read_bytes() + b" \n" + line + b"\n" + b'{"torn')
    kept = store(path)
    assert texts(path) == ["a"]
    assert [damage.torn for damage in kept.damaged] == [False, False, True]
    damaged = kept.set_damaged_aside()
    assert [damage.line for damage in damaged] == [1, 4]
    assert str(damaged[0]).startswith(f"{path}, line 1: it is no")
    assert len(str(damaged[0])) < 400 + len(str(path))
    assert path.with_name("results.jsonl.damaged").read_bytes() == 2 * (line + b"\n")
    assert kept.set_damaged_aside() == store(path).set_damaged_aside() == []
    kept.add(Entry("b", "k", Note("b")))
    assert texts(path) == ["a", "b"]


def test_earlier_values_are_set_aside_but_for_those_that_are_kept(path):
    """The earlier file has another name."""
    assert store(path).set_aside() is None
    add(path, "a", "b", "c")
    kept = store(path)
    renamed = kept.set_aside(kept.entries[1:])
    assert renamed is not None
    assert texts(renamed) == ["a", "b", "c"]
    assert texts(path) == ["b", "c"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9999])
def test_a_disk_that_is_full_in_the_middle_leaves_the_file_unchanged(path, share):
    """A failed write is taken back."""
    add(path, "before")
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + int(share * 30_000), limits[1]))
    try:
        with pytest.raises(ShardbenchError, match=r"^Results cannot be written to .*too large"):
            add(path, "x" * 30_000, "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


def test_folders_and_files_stand_in_each_others_place(path):
    """A path that cannot be written is one sentence."""
    with pytest.raises(ShardbenchError, match=r"cannot be read: Is a directory"):
        add(path.parent)
    with pytest.raises(ShardbenchError, match="it is not a file"), hold(path.parent):
        pass
    path.write_text("mine")
    with pytest.raises(ShardbenchError, match=r"^Results cannot be written to "):
        add(path / "results.jsonl", "a")
    assert path.read_text() == "mine"


def _add_often(path: Path, name: str, times: int) -> None:
    for _ in range(times):
        add(path, name)


def test_two_that_append_at_once_lose_nothing(path):
    """Lines of two processes do not mix."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_add_often, args=(path, name, 100)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(texts(path)) == ["a"] * 100 + ["b"] * 100


HOLDER = """
import sys, time
from pathlib import Path
from harness.store.lines import hold
with hold(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_a_lock_is_of_a_file_by_any_name_until_its_process_ends(path):
    """A link to a file is the same file, and a dead process holds nothing."""
    path.touch()
    other = path.with_name("link.jsonl")
    other.symlink_to(path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(ShardbenchError) as refused, hold(other):
            pass
        assert str(refused.value) == (
            f"Process {holder.pid} is measuring into {path}; wait for it to end, or name another "
            "file."
        )
    finally:
        holder.kill()
        holder.communicate()
    with hold(path):
        pass
    assert not list(path.parent.glob("*.lock"))

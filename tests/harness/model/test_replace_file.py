"""A file is written completely or not at all."""

import os
import threading

import pytest

from harness.model.files import replace_file


def test_a_file_is_replaced_or_left_as_it_was(tmp_path):
    """A failed write leaves no other file behind."""
    path = tmp_path / "plan.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "\ud800")
    assert path.read_text() == "old"
    replace_file(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["plan.json.gz", "n" * 250 + ".json"])
def test_a_second_writer_at_the_same_time_leaves_one_whole_file(tmp_path, monkeypatch, name):
    """Two writers of one path, such as two ranks, both succeed; the last one's content stays."""
    path, sync, writers = tmp_path / name, os.fsync, ["second"]

    def write_meanwhile(descriptor):
        if writers:
            replace_file(path, writers.pop())
            assert path.read_text() == "second"
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", write_meanwhile)
    replace_file(path, "the first one")
    assert path.read_text() == "the first one"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    """A pipe is not replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    replace_file(pipe, "text")
    reader.join(10)
    assert read == ["text"]
    assert pipe.is_fifo()

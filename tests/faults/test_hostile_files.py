"""Every loader refuses at once a path that is no regular file or cannot be read."""

import os
from pathlib import Path

import pytest
from hostile import no_files, refusal

from harness.contract.registry import load_registry
from harness.model.files import MOST_BYTES, read_file
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dimspec.stream_file import read_stream
from planners.embedding.plan_files.loader import plan_constraints
from planners.embedding.tables.files import read_tables
from reports.core.frames import read_results


def _labelled(family):
    return lambda name: load_registry().find(family).label(WorkloadSpec(name))


LOADERS = {
    "tables as CSV": (".csv", read_tables),
    "tables as Parquet": (".parquet", read_tables),
    "topologies": (".csv", lambda name: find_topology(name, 8)),
    "one of the topologies": (".csv", lambda name: find_topology(f"{name}#mine", 8)),
    "a plan": (".json", plan_constraints),
    "a stream": (".json.gz", lambda name: read_stream(Path(name))),
    "results": (".jsonl", lambda name: read_results(Path(name))),
    "the label of embedding": (".csv", _labelled("embedding")),
    "the label of dimspec": (".json.gz", _labelled("dimspec")),
}
WHAT = (
    *("missing", "folder", "pipe", "device", "loop", "huge", "below a file", "a long name", "NUL"),
    *("half a surrogate", "bytes that are no text", "an escape"),
)


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("loader", LOADERS)
def test_what_is_no_file_is_refused_in_one_sentence(tmp_path, loader, what):
    suffix, read = LOADERS[loader]
    said = refusal(lambda: read(no_files(tmp_path, suffix)[what]))
    assert "cannot be read: " in said
    assert str(tmp_path) in said or "nnn" in said  # of a long path the middle is left out


@pytest.mark.parametrize("loader", LOADERS)
def test_an_empty_file_is_refused_in_one_sentence(tmp_path, loader):
    suffix, read = LOADERS[loader]
    if loader.endswith("dimspec"):
        return  # which reads it only when it builds the problem
    path = tmp_path / f"empty{suffix}"
    path.touch()
    assert "empty" in refusal(lambda: read(str(path)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path):
    path = tmp_path / "mine.csv"
    path.touch(0o000)
    assert "Permission denied" in refusal(lambda: read_file(path))


def test_a_file_is_read_whole(tmp_path):
    path = tmp_path / "mine"
    path.write_bytes(b"\x00\xff\r\n")
    assert read_file(path) == b"\x00\xff\r\n"
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link") == b"\x00\xff\r\n"


def test_what_errors_call_a_file_can_be_said(tmp_path):
    said = refusal(lambda: read_file(tmp_path / "none", "Results file 'none'"))
    assert said == "Results file 'none' cannot be read: No such file or directory."


def test_a_file_that_grows_while_it_is_read_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.model.files.MOST_BYTES", 3)
    path = tmp_path / "mine"
    path.write_bytes(b"123")
    assert read_file(path) == b"123"
    path.write_bytes(b"1234")
    assert "must hold at most 3 bytes" in refusal(lambda: read_file(path))
    assert MOST_BYTES == 2**30

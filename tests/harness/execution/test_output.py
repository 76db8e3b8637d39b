"""The output of child processes: its beginning is passed on, and its end is kept."""

import os
import sys
from multiprocessing import Pipe

import pytest

from harness.execution.child import Output


@pytest.fixture
def pipe():
    """The output of a process, and the end of its pipe that the process writes into."""
    reader, writer = Pipe(duplex=False)
    yield Output(reader), writer
    writer.close()


def test_short_output_is_passed_on_as_it_is(pipe, capsys) -> None:
    """A character that comes in two pieces is printed once."""
    output, writer = pipe
    for part in (b"one\ntw", b"o\n\xc3", b"\xa9\n"):
        os.write(writer.fileno(), part)
        assert output.read()
    output.close()
    assert capsys.readouterr().err == "one\ntwo\né\n"


def test_a_flood_is_cut_and_counted(pipe, capsys) -> None:
    """The first 8 KiB are passed on, and the rest is counted."""
    output, writer = pipe
    for _ in range(10):
        os.write(writer.fileno(), b"y" * 40_000)
        output.read()
    output.close()
    err = capsys.readouterr().err
    assert err == "y" * 8192 + "\n(It printed 391,808 more bytes, which are left out.)\n"


def test_the_last_of_it_is_whole_lines(pipe) -> None:
    """The last 2048 characters begin with a whole line."""
    output, writer = pipe
    for number in range(1000):
        os.write(writer.fileno(), b"line %04d\n" % number)
    lines = output.last().splitlines()
    assert lines[-1] == "line 0999"
    assert len(lines) > 150
    assert {len(line) for line in lines} == {9}


def test_bytes_that_are_no_text_are_escapes(pipe) -> None:
    """Control characters are escapes, too."""
    output, writer = pipe
    os.write(writer.fileno(), b"\xff\x00a\tb\x7f \xe2\x80\xae\n")
    assert output.last() == "\\xff\\x00a    b\\x7f \\u202e"


def test_the_output_is_kept_without_standard_error(pipe, monkeypatch) -> None:
    """A process may have no standard error."""
    output, writer = pipe
    monkeypatch.setattr(sys, "stderr", None)
    os.write(writer.fileno(), b"kept")
    assert output.last() == "kept"

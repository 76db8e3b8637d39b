"""The output of child processes, and messages on how they ended."""

import os
import sys
import time
from multiprocessing import Pipe

import pytest
from processes import server_children

from harness.execution.bootstrap import Report
from harness.execution.child import Child, how_it_ended
from harness.execution.messages import Failed
from harness.execution.output import Output


def _keep_the_pipe(report: Report) -> None:
    os.write(1, b"before\n")
    if not os.fork():
        time.sleep(600)
    os._exit(0)


def test_who_keeps_the_pipe_open_is_not_waited_for(capfd: pytest.CaptureFixture[str]):
    with Child(_keep_the_pipe) as process:
        message = process.receive(60.0)
    assert isinstance(message, Failed)
    assert "before" in capfd.readouterr().err
    assert server_children() == []


class TestOutput:
    @pytest.fixture
    def pipe(self):
        reader, writer = Pipe(duplex=False)
        yield Output(reader), writer
        writer.close()

    def test_a_little_is_passed_on_as_it_is(self, pipe, capsys):
        output, writer = pipe
        for part in (b"one\ntw", b"o\n\xc3", b"\xa9\n"):
            os.write(writer.fileno(), part)
            assert output.read()
        output.close()
        assert capsys.readouterr().err == "one\ntwo\né\n"

    @pytest.mark.parametrize(
        ("line", "passed"), [(b"x\n", 100), (b"y" * 127 + b"\n", 64), (b"z" * 20_000, 0)]
    )
    def test_a_flood_is_cut_and_counted_once(self, pipe, capsys, line: bytes, passed: int):
        output, writer = pipe
        for _ in range(10):
            os.write(writer.fileno(), line * (40_000 // len(line)))
            output.read()
        output.close()
        err = capsys.readouterr().err
        total = 10 * (40_000 // len(line)) * len(line)
        begun, _, said = err.rpartition("(It printed ")
        left_out = int(said.partition(" more bytes, which are left out.)")[0].replace(",", ""))
        assert begun.count("\n") == passed or passed == 0
        assert len(begun.rstrip("\n")) <= 8 * 1024
        assert abs(total - left_out - len(begun)) <= 1

    def test_the_last_of_it_is_whole_lines(self, pipe):
        output, writer = pipe
        for number in range(1000):
            os.write(writer.fileno(), b"line %04d\n" % number)
        lines = output.last().splitlines()
        assert lines[-1] == "line 0999"
        assert len(lines) > 150
        assert {len(line) for line in lines} == {9}

    def test_what_is_no_text_is_kept_as_escapes(self, pipe):
        output, writer = pipe
        os.write(writer.fileno(), b"\xff\x00a\tb\x7f \xe2\x80\xae\n")
        assert output.last() == "\\xff\\x00a    b\\x7f \\u202e"

    def test_where_standard_error_is_gone_nothing_is_lost_but_that(self, pipe, monkeypatch):
        output, writer = pipe
        monkeypatch.setattr(sys, "stderr", None)
        os.write(writer.fileno(), b"kept")
        assert output.last() == "kept"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "ended with exit code 0"),
        (-11, "was killed by signal 11 (SIGSEGV)"),
        (-40, "was killed by signal 40"),
    ],
)
def test_how_a_process_ended_is_said_in_words(code: int, text: str):
    assert how_it_ended(code) == text

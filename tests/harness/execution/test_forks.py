"""Forks, in child processes that fork as the timing of calls does."""

import ctypes
import os
import signal
import time
from contextlib import ExitStack

import psutil
import pytest

from harness.execution.child import run
from harness.execution.forks import Fork, listen
from harness.execution.usage import has_more_than
from harness.execution.worker import Failed, Note, Report, Stage

FIRST = Stage("the first stage", 30.0)


def in_a_child(work, *arguments, heard=None):
    """Run work in a child process; return its result or its failure."""
    listener = (heard if heard is not None else []).append
    return run(work, *arguments, first=FIRST, listen=listener)


def _result_of(fork_work, report: Report):
    with Fork(fork_work, report) as fork:
        return fork.result()


def _returns(send):
    return os.getpid(), os.getppid()


def _tells_two_values(send):
    send(1)
    send("two" * 100_000)
    return "three"


def _forks_and_goes_on(send):
    os.fork()
    send("once")
    time.sleep(0.2)
    return "result"


def _notes(report: Report):
    with Fork(_forks_and_goes_on, report) as fork:
        told = []
        until = time.monotonic() + 1
        while time.monotonic() < until:
            told += [m.content for _, m in listen({"": fork}, 0.05) if isinstance(m, Note)]
            if told:
                break
        return told


def test_the_result_is_that_of_another_process():
    pid, parent = in_a_child(_result_of, _returns)
    assert pid != parent != os.getpid()


def test_values_before_the_result_are_no_result():
    assert in_a_child(_result_of, _tells_two_values) == "three"


def test_a_fork_of_the_fork_says_nothing():
    assert in_a_child(_notes) == ["once"]


def _crashes(send):
    ctypes.string_at(0)


def _leaves(send):
    os._exit(7)


def _raises(send):
    raise ValueError("of no use")


def _closes_all(send):
    os.closerange(3, 1000)
    time.sleep(60)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (_crashes, "The child process was killed by signal 11 (SIGSEGV) without a result."),
        (_leaves, "The child process ended with exit code 7 without a result."),
        (_raises, "ValueError: of no use"),
        (_closes_all, "It closed the connection of its child process."),
    ],
)
def test_a_failure_is_told_as_if_the_child_had_failed(work, reason):
    failed = in_a_child(_result_of, work)
    assert isinstance(failed, Failed)
    assert failed.reason == reason


def _crash_apart(report: Report):
    with (
        Fork(_waits, report, is_apart=True, failing=lambda: report.send(Stage("a", 9.0))) as a,
        Fork(_crashes, report, is_apart=True, failing=lambda: report.send(Stage("b", 9.0))) as b,
    ):
        while True:
            listen({"a": a, "b": b}, 0.1)


def _waits(send):
    signal.pause()


def test_it_is_known_which_of_several_has_failed():
    failed = in_a_child(_crash_apart)
    assert (failed.stage.what, failed.reason[:40]) == (
        "b",
        "The child process was killed by signal 1",
    )


def _sends_a_stage(send):
    _REPORT[0].send(Stage("from the fork", 9.0))


_REPORT: list[Report] = []


def _staged(is_apart, report: Report):
    _REPORT[:] = [report]
    with Fork(_sends_a_stage, report, is_apart=is_apart) as fork:
        return fork.result()


@pytest.mark.parametrize("is_apart", [True, False])
def test_stages_go_to_the_parent_unless_it_is_apart(is_apart):
    heard: list[object] = []
    assert in_a_child(_staged, is_apart, heard=heard) is None
    assert heard == ([] if is_apart else [Stage("from the fork", 9.0)])


def _leave_one_running(report: Report):
    with Fork(_waits, report) as fork:
        return fork.pid


def test_leaving_ends_it():
    assert not psutil.pid_exists(in_a_child(_leave_one_running))


def _waits(send):
    send("there")
    signal.pause()


def _has_more_than(report: Report):
    before = psutil.Process().memory_info().rss
    held = bytearray(b"1") * (200 * 2**20)
    with ExitStack() as stack:
        for _ in range(3):
            fork = stack.enter_context(Fork(_waits, report, True))
            assert fork.read() == [Note("there")]
        has_more = [has_more_than(os.getpid(), before + mib * 2**20) for mib in (100, 400)]
    del held
    return has_more


def test_memory_that_forks_share_counts_once():
    assert in_a_child(_has_more_than) == [True, False]

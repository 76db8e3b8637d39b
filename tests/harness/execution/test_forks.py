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
from harness.execution.worker import Note, Report, Stage


def in_a_child(work, *arguments, heard=None):
    """Run work in a child process; return its result or its failure."""
    listener = (heard if heard is not None else []).append
    return run(work, *arguments, first=Stage("the first stage", 30.0), listen=listener)


def result_of(fork_work, report: Report):
    with Fork(fork_work, report) as fork:
        return fork.result()


def forks_and_goes_on(send):
    os.fork()
    send("once")
    time.sleep(0.2)


def notes(report: Report):
    with Fork(forks_and_goes_on, report) as fork:
        told: list[object] = []
        until = time.monotonic() + 10
        while not told and time.monotonic() < until:
            told += [m.content for _, m in listen({"": fork}, 0.05) if isinstance(m, Note)]
        return told, fork.process.pid


def test_a_fork_of_the_fork_says_nothing() -> None:
    """Leaving the block ends the fork."""
    told, pid = in_a_child(notes)
    assert told == ["once"]
    assert not psutil.pid_exists(pid)


def crashes(send):
    ctypes.string_at(0)


def leaves(send):
    os._exit(7)


def raises(send):
    raise ValueError("of no use")


def closes_all(send):
    os.closerange(3, 1000)
    time.sleep(60)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (crashes, "The child process was killed by signal 11 (SIGSEGV) without a result."),
        (leaves, "The child process ended with exit code 7 without a result."),
        (raises, "ValueError: of no use"),
        (closes_all, "It closed the connection of its child process."),
    ],
)
def test_a_failure_is_told_as_if_the_child_had_failed(work, reason) -> None:
    """The parent need not know of forks."""
    assert in_a_child(result_of, work).reason == reason


def waits(send):
    send("there")
    signal.pause()


def crash_apart(report: Report):
    with ExitStack() as stack:
        forks = {
            name: stack.enter_context(
                Fork(work, report, True, lambda name=name: report.send(Stage(name, 9.0)))
            )
            for name, work in (("a", waits), ("b", crashes))
        }
        while True:
            listen(forks, 0.1)


def test_it_is_known_which_of_several_has_failed() -> None:
    """Forks that are apart send their messages to the child, not to its parent."""
    failed = in_a_child(crash_apart)
    assert (failed.stage.what, failed.reason.partition(" by signal 11")[0]) == (
        "b",
        "The child process was killed",
    )


def more_than_limits(report: Report):
    before = psutil.Process().memory_info().rss
    memory = bytearray(b"1") * (200 * 2**20)
    with ExitStack() as stack:
        for _ in range(3):
            assert stack.enter_context(Fork(waits, report, True)).receive() == Note("there")
        has_more = [has_more_than(os.getpid(), before + mib * 2**20) for mib in (100, 400)]
    del memory
    return has_more


def test_memory_that_forks_share_counts_once() -> None:
    """Three forks of a process with 200 MiB have less than 400 MiB together."""
    assert in_a_child(more_than_limits) == [True, False]

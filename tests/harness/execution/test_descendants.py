"""The CPU time and the number of the processes that a process has started."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import pytest

from harness.execution.bootstrap import Report
from harness.execution.child import run
from harness.execution.descendants import descendants_cpu, helpers
from harness.execution.messages import Stage

BUSY = 0.1  # CPU seconds


def busy(seconds: float = BUSY) -> None:
    """Use CPU time of this process."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def fork(work: Callable[[], object]) -> int:
    if child := os.fork():
        return child
    work()
    os._exit(0)


def in_a_fork() -> None:
    os.waitpid(fork(busy), 0)


def in_a_fork_of_a_fork() -> None:
    os.waitpid(fork(in_a_fork), 0)


def in_an_orphan() -> None:
    os.waitpid(fork(lambda: fork(busy)), 0)
    os.wait()


def in_a_fork_without_a_wait() -> None:
    child = fork(busy)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def in_a_program() -> None:
    code = f"import time\nwhile time.process_time() < {BUSY}: pass"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def in_a_new_pool() -> None:
    with ProcessPoolExecutor(1) as pool:
        pool.submit(busy).result()


def counted(works: list[Callable[[], None]], _: Report) -> list[float]:
    """Return the seconds that each work adds."""
    found = []
    for work in works:
        before = descendants_cpu()
        work()
        found.append(descendants_cpu() - before)
    return found


def test_the_time_of_processes_counts_wherever_they_end():
    """Forks, their forks, orphans, programs, pools and children without a wait are counted."""
    works = [in_a_fork, in_a_fork_of_a_fork, in_an_orphan, in_a_program, in_a_new_pool]
    works.append(in_a_fork_without_a_wait)
    seconds = run(counted, works, first=Stage("counting", 60.0))
    assert all(BUSY <= each < 20 * BUSY for each in seconds), seconds


def living(_: Report) -> list[float]:
    """Return what two calls in the living worker of a pool add, and the end of the pool."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(busy, 0.0).result()
        times = [descendants_cpu()]
        for _ in range(2):
            pool.submit(busy).result()
            times.append(descendants_cpu())
    times.append(descendants_cpu())
    return [after - before for before, after in pairwise(times)]


def test_the_time_of_a_living_worker_counts_at_once_and_only_once():
    """A worker's time is counted while it lives, and stays the same when it has ended."""
    first, second, ended = run(living, first=Stage("counting", 60.0))
    assert BUSY <= first < 2 * BUSY
    assert BUSY <= second < 2 * BUSY
    assert 0 <= ended < BUSY


@contextmanager
def a_thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@contextmanager
def a_child() -> Iterator[None]:
    child = fork(signal.pause)
    yield
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("helper", [a_thread, a_child])
def test_helpers_are_the_threads_and_children_that_go_on(helper):
    """A thread or a child process counts from its start to its end."""
    before = helpers()
    with helper():
        assert helpers() == before + 1
    assert helpers() == before

"""The threads and child processes of this process, and the CPU time of its descendants."""

import ctypes
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def helpers() -> int:
    """Return the number of this process's other threads that run Python, and of its children."""
    return len(sys._current_frames()) - 1 + len(list(_children(os.getpid())))


def descendants_cpu() -> float:
    """Return the CPU seconds of this process's descendants, those that have ended included.

    Of an ended process, the time is lost if its parent ignores its end (`SIGCHLD`). Without a
    `/proc` file system, the time of a process counts only once its parent has waited for it.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    try:  # one quick system call, because most planners have no children to look for
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return seconds
    return seconds + sum(map(_cpu_seconds, _children(os.getpid())))


def _children(process: int) -> Iterator[int]:
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{process}/task").glob("*/children"):
            yield from map(int, thread.read_text().split())


def _cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process and its descendants, to the nanosecond while they run.

    The kernel counts the descendants that have ended in hundredths of a second.
    """
    clock = ctypes.c_int(-1)  # no clock, which raises if the process has ended
    ctypes.CDLL(None).clock_getcpuclockid(process, ctypes.byref(clock))
    with suppress(OSError, psutil.Error):  # it has ended since it was listed
        times = psutil.Process(process).cpu_times()
        ended = float(times.children_user + times.children_system)
        return time.clock_gettime(clock.value) + ended + sum(map(_cpu_seconds, _children(process)))
    return 0.0

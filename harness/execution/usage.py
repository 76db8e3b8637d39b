"""The memory and the CPU time of processes, their threads and their children.

A memory limit applies to the resident memory of a process and its descendants.
"""

import ctypes
import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from harness.execution.worker import children, memory_sizes

_CLEAR = Path("/proc/self/clear_refs")
_PEAK_OF_RESIDENT = "5"  # written to clear_refs, this resets the peak: proc(5)


def helpers() -> int:
    """Return the number of this process's other threads that run Python, and of its children."""
    return len(sys._current_frames()) - 1 + len(list(children()))


def descendants_cpu() -> float:
    """Return the CPU seconds of this process's descendants, those that have ended included.

    Of an ended process, the time is lost if its parent ignores its end (`SIGCHLD`).
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    try:  # one quick system call, because most planners have no children to look for
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return seconds
    return seconds + sum(map(_cpu_seconds, children()))


def _cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process and its descendants, to the nanosecond while they run.

    The kernel counts the descendants that have ended in hundredths of a second.
    """
    clock = ctypes.c_int(-1)  # no clock, which raises if the process has ended
    ctypes.CDLL(None).clock_getcpuclockid(process, ctypes.byref(clock))
    with suppress(OSError, psutil.Error):  # it has ended since it was listed
        times = psutil.Process(process).cpu_times()
        ended = float(times.children_user + times.children_system)
        return time.clock_gettime(clock.value) + ended + sum(map(_cpu_seconds, children(process)))
    return 0.0


def begin_peak() -> int:
    """Reset the peak, and return the present resident memory in bytes.

    Without a reset, the peak would include the memory of the process that the child was forked
    from, and of the set-up.
    """
    with suppress(OSError):  # a container may not allow it
        _CLEAR.write_text(_PEAK_OF_RESIDENT)
    return peak()


def peak() -> int:
    """Return the peak resident memory of this process, in bytes, since `begin_peak`."""
    return memory_sizes()["VmHWM"]


def has_more_than(pid: int, limit: float) -> bool:
    """Return whether a process and its descendants have more than `limit` resident bytes.

    Memory that forks share counts once, if the system reports shared memory. That report is slow,
    so it is only requested if the plain sum over the processes exceeds the limit.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:  # the process has ended
        return False
    if sum(_resident_bytes(process) for process in family) <= limit:
        return False
    return len(family) == 1 or sum(_resident_bytes(p, shared=True) for p in family) > limit


def _resident_bytes(process: psutil.Process, shared: bool = False) -> int:
    """Return a process's resident bytes; if `shared`, its part of each page that others share."""
    with suppress(psutil.Error):  # the process has ended since it was listed
        if not shared:
            return int(process.memory_info().rss)
        has = process.memory_full_info()
        return int(getattr(has, "pss", has.rss))
    return 0

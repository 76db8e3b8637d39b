"""Measure and limit the memory of processes.

A limit applies to the resident memory of a process and its descendants. Linux can only limit the
memory that a process reserves, which is more than its resident memory. So the limit inside the
process has a margin, and the parent checks the resident memory a few times a second.
"""

import errno
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from harness.model.machine import GIB, default_memory_gib

# The margin: thread stacks and allocator arenas are reserved, but mostly not resident.
_RESERVED = GIB
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_PEAK_OF_RESIDENT = "5"  # written to clear_refs, this resets the peak: proc(5)
_UNIT = 1 if sys.platform == "darwin" else 1024
_REFUSED = re.compile(r"bad_alloc|can(?:no|')t allocate memory", re.IGNORECASE)


def shared_limit_gib(gib: float, variants: int) -> float:
    """Return the memory limit, in GiB, of a process with several variants of `gib` each.

    It is at most the machine's default limit, unless `gib` itself is larger.
    """
    return max(gib, min(gib * variants, default_memory_gib()))


def limit_memory(gib: float) -> None:
    """Limit the memory of this process, and of children that it starts, to `gib` and a margin."""
    with suppress(OSError, ValueError, KeyError):  # the parent also checks the memory
        has = _own_bytes()
        room = max(0, round(gib * GIB) - has["VmRSS"]) + _RESERVED
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = has["VmData"] + room
        if most == resource.RLIM_INFINITY or wanted < most:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def lift_limit() -> None:
    """Remove this process's memory limit, so that it can report that memory was refused."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def begin_peak() -> int:
    """Reset the peak, and return the present resident memory in bytes.

    Without a reset, the peak would include the memory of the process that the child was forked
    from, and of the set-up. If the system cannot reset the peak, the old peak is returned.
    """
    with suppress(OSError):
        _CLEAR.write_text(_PEAK_OF_RESIDENT)
    return peak()


def peak() -> int:
    """Return the peak resident memory of this process, in bytes, since `begin_peak`."""
    with suppress(OSError, KeyError):
        return _own_bytes()["VmHWM"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def _own_bytes() -> dict[str, int]:
    """Return the sizes in /proc/self/status, converted from KiB to bytes, by name."""
    lines = (line.split() for line in _STATUS.read_text(encoding="utf-8").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def is_memory_error(error: BaseException) -> bool:
    """Return whether an error reports a lack of memory, even if a native library raised it."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and mentions_memory_error(str(error))
    )


def mentions_memory_error(text: str) -> bool:
    """Return whether the output of a process, or an error's text, reports a lack of memory."""
    return _REFUSED.search(text) is not None


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
    if sum(map(_resident_bytes, family)) <= limit:
        return False
    return len(family) == 1 or sum(map(_proportional_bytes, family)) > limit


def _resident_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):  # the process has ended since it was listed
        return int(process.memory_info().rss)
    return 0


def _proportional_bytes(process: psutil.Process) -> int:
    """Return the resident bytes of a process; each shared page is divided among its sharers."""
    with suppress(psutil.Error):
        has = process.memory_full_info()
        return int(getattr(has, "pss", has.rss))
    return 0

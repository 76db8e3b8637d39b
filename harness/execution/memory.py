"""The memory of processes: its present amount, and the limit for a child process.

A limit is on resident memory, of the process and of all that it has started. Linux can refuse a
process only what it reserves, which is more, so inside the process the limit comes with room for
that; the parent, which sees what is resident, looks a few times a second.
"""

import errno
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from harness.model.machine import GIB, default_memory_gib

# Stacks of threads and the arenas of allocators are reserved and hardly touched.
_RESERVED = GIB
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_PEAK_OF_RESIDENT = "5"  # what to write there: proc(5)
_UNIT = 1 if sys.platform == "darwin" else 1024
_REFUSED = re.compile(r"bad_alloc|can(?:no|')t allocate memory", re.IGNORECASE)


def shared_limit_gib(gib: float, variants: int) -> float:
    """Return the limit in GiB of a process that holds several variants, each with a limit of `gib`.

    Together they may have no more than the machine can give.
    """
    return max(gib, min(gib * variants, default_memory_gib()))


def limit_memory(gib: float) -> None:
    """Refuse memory far beyond a limit to this process and those that it will start."""
    with suppress(OSError, ValueError, KeyError):  # the parent looks anyway
        has = _own_bytes()
        room = max(0, round(gib * GIB) - has["VmRSS"]) + _RESERVED
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = has["VmData"] + room
        if most == resource.RLIM_INFINITY or wanted < most:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def lift_limit() -> None:
    """Allow this process memory again, so that it can report the refusal."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def begin_peak() -> int:
    """Forget the peak so far, and return the present resident memory in bytes.

    A child starts with the memory of the process that it was forked from, and its set-up may have
    taken more than the call will. Where the system cannot forget, the old peak is returned.
    """
    with suppress(OSError):
        _CLEAR.write_text(_PEAK_OF_RESIDENT)
    return peak()


def peak() -> int:
    """Return the most resident memory of this process in bytes since `begin_peak`."""
    with suppress(OSError, KeyError):
        return _own_bytes()["VmHWM"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def _own_bytes() -> dict[str, int]:
    """Return the bytes of each figure that the system gives in KiB."""
    lines = (line.split() for line in _STATUS.read_text(encoding="utf-8").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def is_memory_error(error: BaseException) -> bool:
    """Whether an error reports a lack of memory, also one of a native library."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and mentions_memory_error(str(error))
    )


def mentions_memory_error(text: str) -> bool:
    """Whether the output of a process, or an error's text, reports a lack of memory."""
    return _REFUSED.search(text) is not None


def has_more_than(pid: int, limit: float) -> bool:
    """Whether a process and all that it started have more resident bytes than `limit`.

    Memory that forks share counts once, where the system tells; since that takes it long, it is
    asked only where the sum of what each has is over the limit.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:  # it has ended
        return False
    if sum(map(_resident_bytes, family)) <= limit:
        return False
    return len(family) == 1 or sum(map(_proportional_bytes, family)) > limit


def _resident_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):  # gone since
        return int(process.memory_info().rss)
    return 0


def _proportional_bytes(process: psutil.Process) -> int:
    """Return the resident bytes, those that several processes share divided among them."""
    with suppress(psutil.Error):
        has = process.memory_full_info()
        return int(getattr(has, "pss", has.rss))
    return 0

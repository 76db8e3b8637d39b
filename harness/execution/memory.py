"""How much memory a child process may take: refused to it from inside, watched from outside.

A limit is on resident memory, of the process and of all that it has started. Linux can refuse a
process only what it reserves, which is more, so from inside the limit comes with room for that; the
parent, which sees what is resident, looks a few times a second.
"""

import errno
import re
import resource
from contextlib import suppress
from pathlib import Path

import psutil

from harness.model.machine import GIB, default_memory_gib

# Stacks of threads and the arenas of allocators are reserved and hardly touched.
_RESERVED = GIB
_STATUS = Path("/proc/self/status")
_REFUSED = re.compile(r"bad_alloc|can(?:no|')t allocate memory", re.IGNORECASE)


def shared_limit_gib(gib: float, variants: int) -> float:
    """Return the limit in GiB of a process that holds several variants, each with that of its own.

    Together they may have no more than the machine can give.
    """
    return max(gib, min(gib * variants, default_memory_gib()))


def refuse_beyond(gib: float) -> None:
    """Refuse this process and those that it will start what would take them far beyond a limit."""
    with suppress(OSError, ValueError, KeyError):  # a system without such limits has the watch
        has = _own_memory()
        room = max(0, round(gib * GIB) - has["VmRSS"]) + _RESERVED
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = has["VmData"] + room
        if most == resource.RLIM_INFINITY or wanted < most:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def refuse_no_more() -> None:
    """Lift what was refused, so that a process can say that it was."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _own_memory() -> dict[str, int]:
    """Return the bytes of each figure that the system gives in KiB."""
    lines = (line.split() for line in _STATUS.read_text(encoding="utf-8").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def was_refused(error: BaseException) -> bool:
    """Whether an error says that there was no memory, also where a native library raised it."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and says_refused(str(error))


def says_refused(printed: str) -> bool:
    """Whether a process that died had printed that there was no memory."""
    return _REFUSED.search(printed) is not None


def resident(pid: int) -> int:
    """Return the resident bytes of a process and of all that it started, 0 where it is gone.

    Memory that several of them share counts once for each.
    """
    try:
        process = psutil.Process(pid)
        processes = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for each in processes:
        with suppress(psutil.Error):  # gone since
            total += each.memory_info().rss
    return total

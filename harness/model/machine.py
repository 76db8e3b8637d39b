"""The default memory limit on this machine or in this container."""

from contextlib import suppress
from pathlib import Path

import psutil

GIB = 2**30

_SHARE_OF_MACHINE = 0.9
# A container is killed when it passes its own limit, whatever the machine's memory.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def default_memory_gib() -> float:
    """Return 90 % of the machine's or container's memory in GiB, rounded to two digits.

    The limit is part of the settings, and results with different settings are measured again.
    Rounding keeps it equal if the memory differs slightly.
    """
    total = psutil.virtual_memory().total
    for path in _CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # no container, or "max"
            total = min(total, int(path.read_text()))
    return float(f"{_SHARE_OF_MACHINE * total / GIB:.2g}")

"""The clocks for timing calls; tests replace them."""

import resource
import time
from typing import Protocol

from harness.execution.usage import descendants_cpu


class Clock(Protocol):
    """A clock for wall time and for CPU time, in seconds."""

    def wall(self) -> float:
        """Return the seconds of wall time since an arbitrary start."""
        ...

    def cpu(self) -> float:
        """Return the CPU seconds of this process and of all its descendants."""
        ...

    def thread_cpu(self) -> float:
        """Return the CPU seconds of the calling thread."""
        ...

    def waits(self) -> int:
        """Return how often the calling thread has given up its core to wait for something."""
        ...


class SystemClock:
    """The clocks of this machine; looking for child processes does not advance `cpu`."""

    wall = staticmethod(time.perf_counter)
    thread_cpu = staticmethod(time.thread_time)

    def __init__(self) -> None:
        self._looking_s = 0.0

    def cpu(self) -> float:
        """Return the CPU seconds of this process and of all its descendants."""
        own = time.process_time()
        total = own - self._looking_s + descendants_cpu()
        self._looking_s += time.process_time() - own
        return total

    def waits(self) -> int:
        """Return how often the calling thread has given up its core to wait for something."""
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

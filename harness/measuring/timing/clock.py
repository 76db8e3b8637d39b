"""The clocks for timing calls; tests replace them."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock for wall time and for CPU time of process and thread, in seconds."""

    def wall(self) -> float:
        """Return the seconds of wall time since an arbitrary start."""
        ...

    def cpu(self) -> float:
        """Return the CPU seconds of this process, all threads together."""
        ...

    def thread_cpu(self) -> float:
        """Return the CPU seconds of the calling thread."""
        ...


class SystemClock:
    """The clocks of the `time` module."""

    wall = staticmethod(time.perf_counter)
    cpu = staticmethod(time.process_time)
    thread_cpu = staticmethod(time.thread_time)

"""The clocks that calls are timed with; tests replace them."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time and CPU time of process and thread, in seconds from an arbitrary start."""

    def wall(self) -> float:
        """Seconds of wall time."""
        ...

    def cpu(self) -> float:
        """Seconds of CPU time of this process, all threads."""
        ...

    def thread_cpu(self) -> float:
        """Seconds of CPU time of the calling thread alone."""
        ...


class SystemClock:
    """The machine's own clocks."""

    wall = staticmethod(time.perf_counter)
    cpu = staticmethod(time.process_time)
    thread_cpu = staticmethod(time.thread_time)

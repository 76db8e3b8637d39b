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

    def wall(self) -> float:
        """Seconds of wall time."""
        return time.perf_counter()

    def cpu(self) -> float:
        """Seconds of CPU time of this process, all threads."""
        return time.process_time()

    def thread_cpu(self) -> float:
        """Seconds of CPU time of the calling thread alone."""
        return time.thread_time()

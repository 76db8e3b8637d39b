"""A clock that moves only by calls of `advance`."""


class FakeClock:
    """A clock of wall and CPU seconds, moved by hand; it starts far from 0, like real clocks."""

    def __init__(self) -> None:
        self._wall = 1000.0
        self._cpu = 500.0
        self._thread_cpu = 100.0
        self._waits = 7

    def wall(self) -> float:
        return self._wall

    def cpu(self) -> float:
        return self._cpu

    def thread_cpu(self) -> float:
        return self._thread_cpu

    def waits(self) -> int:
        return self._waits

    def advance(
        self,
        wall_s: float,
        cpu_s: float | None = None,
        thread_cpu_s: float | None = None,
        waits: int = 0,
    ) -> None:
        """Add `wall_s` seconds of wall time, and by default the same amount of CPU time."""
        self._waits += waits
        self._wall += wall_s
        cpu_s = wall_s if cpu_s is None else cpu_s
        self._cpu += cpu_s
        self._thread_cpu += cpu_s if thread_cpu_s is None else thread_cpu_s

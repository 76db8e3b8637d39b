"""A clock that moves only when it is told to."""


class FakeClock:
    """Wall and CPU time in seconds, moved by hand; starts far from zero as real clocks do."""

    def __init__(self) -> None:
        self._wall = 1000.0
        self._cpu = 500.0
        self._thread_cpu = 100.0

    def wall(self) -> float:
        return self._wall

    def cpu(self) -> float:
        return self._cpu

    def thread_cpu(self) -> float:
        return self._thread_cpu

    def advance(
        self, wall_s: float, cpu_s: float | None = None, thread_cpu_s: float | None = None
    ) -> None:
        """Move by `wall_s` seconds of wall time, and as much CPU time unless told otherwise."""
        self._wall += wall_s
        cpu_s = wall_s if cpu_s is None else cpu_s
        self._cpu += cpu_s
        self._thread_cpu += cpu_s if thread_cpu_s is None else thread_cpu_s

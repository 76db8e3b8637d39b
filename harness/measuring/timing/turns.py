"""The clocks, the time of one turn (one or several calls of a variant), and a call's work."""

import gc
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from harness.contract import Measured, Prepared
from harness.contract.recorder import collection_off, profiled
from harness.execution.usage import descendants_cpu
from harness.model.cell import CountedWork


class SystemClock:
    """The clocks of this machine, in seconds; tests replace them."""

    wall = staticmethod(time.perf_counter)
    thread_cpu = staticmethod(time.thread_time)

    def __init__(self) -> None:
        self._looking_s = self._descendants_s = self._last_s = 0.0

    def cpu(self) -> float:
        """Return the CPU seconds of this process and of all its descendants.

        The time that looking for child processes takes does not count.
        """
        own = time.process_time()
        descendants_s = descendants_cpu()
        # When a descendant ends, a part of its time can be lost, so the sum can decrease.
        self._descendants_s += max(0.0, descendants_s - self._last_s)
        self._last_s = descendants_s
        total = own - self._looking_s + self._descendants_s
        self._looking_s += time.process_time() - own
        return total

    def waits(self) -> int:
        """Return how often the calling thread has given up its core to wait for something."""
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Turn(NamedTuple):
    """The mean wall and CPU seconds of a call in one turn, and the last call's decision.

    `cpu_s` includes all threads and child processes: moving work there is not a speed-up.
    `thread_cpu_s` is of the calling thread only. For a call measured in another process it is None,
    and `lasts_s` is the wall seconds of a call here. Of the whole turn: `install_s` is the wall
    seconds of entering the variant's context, `turn_s` the CPU seconds of this thread, including
    that, and `waits` how often the calls gave up the core.
    """

    wall_s: float
    cpu_s: float
    thread_cpu_s: float | None
    decision: Any = None
    lasts_s: float = 0.0
    install_s: float = 0.0
    turn_s: float = 0.0
    waits: int = 0


def timed_turn(prepared: Prepared[Any], clock: SystemClock, calls: int = 1) -> Turn:
    """Call a prepared variant `calls` times in its `installed` context; return the mean times."""
    wall_s = cpu_s = thread_s = elsewhere_wall_s = elsewhere_cpu_s = 0.0
    waits = 0
    # With `renew`, each call is timed alone, to exclude renewing. Otherwise all calls are timed
    # together, because a single call may be too short for the clock.
    rounds, calls_of_round = (calls, 1) if prepared.renew else (1, calls)
    turn_start, install_start = clock.thread_cpu(), clock.wall()
    with prepared.installed(), collection_off():
        install_s = clock.wall() - install_start
        for _ in range(rounds):
            prepared.begin()
            if calls_of_round > 1:  # untimed: the processor's caches have another variant's data
                prepared.run()
            waits -= clock.waits()
            # `cpu` looks for child processes, so it is read first, and last after the calls.
            cpu_start, wall_start, thread_start = clock.cpu(), clock.wall(), clock.thread_cpu()
            for _ in range(calls_of_round):
                result = prepared.run()
                if isinstance(result, Measured):
                    elsewhere_wall_s += result.wall_s
                    elsewhere_cpu_s += result.cpu_s
            thread_s += clock.thread_cpu() - thread_start
            wall_s += clock.wall() - wall_start
            cpu_s += clock.cpu() - cpu_start
            waits += clock.waits()
    rest = wall_s / calls, install_s, clock.thread_cpu() - turn_start, waits
    if isinstance(result, Measured):
        return Turn(elsewhere_wall_s / calls, elsewhere_cpu_s / calls, None, result.decision, *rest)
    return Turn(wall_s / calls, cpu_s / calls, thread_s / calls, result, *rest)


@contextmanager
def objects_frozen() -> Iterator[None]:
    """Freeze all present objects inside the `with` block, so that collections are short.

    Imported modules and problems would survive every collection in it. If a caller has frozen
    objects already, all stay frozen afterwards.
    """
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


def count_work(
    prepared: Prepared[Any], is_counted_twice: bool = True, _send: object = None
) -> CountedWork:
    """Count the function calls in one or two untimed runs; return the lower count, and the spread.

    Only calls in this thread count. `spread` is the difference between the two counts, None for one
    run; the share of the time in built-in functions is that of the first run.
    """
    counts, shares = [], []
    for _ in range(2 if is_counted_twice else 1):
        with prepared.installed():
            prepared.begin()
            _, entries = profiled(prepared.run)
        counts.append(sum(entry.callcount for entry in entries) - 1)  # without the last, `disable`
        seconds = sum(entry.inlinetime for entry in entries)
        built_in = sum(entry.inlinetime for entry in entries if isinstance(entry.code, str))
        shares.append(min(1.0, built_in / seconds) if seconds > 0 else 0.0)
    spread = max(counts) - min(counts) if is_counted_twice else None
    return CountedWork(min(counts), spread, shares[0])

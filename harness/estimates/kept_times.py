"""Time computations, each paired with a reference; store the times so that a run can resume."""

import statistics
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct

from harness.contract import Prepared
from harness.contract.abilities.estimates import TimedWork, Workbench
from harness.measuring.timing.turns import SystemClock, timed_turn
from harness.measuring.timing.verdict import estimate_ratio
from harness.model.cell import Ratio
from harness.model.errors import ShardbenchError
from harness.store.keys import Key
from harness.store.lines import Entry, Store

Seconds = Annotated[float, Meta(gt=0)]
OnProgress = Callable[[str, int, int], None]
"""A callback that gets the name of the present work, the number done, and the total."""


class Pair(Struct, frozen=True):
    """The seconds of one pass (`call`) of a work, and of the reference right before it."""

    call: str
    seconds: Seconds
    reference: Seconds


class TimesFile:
    """Pairs of times by work and pass, in a store; those with another key do not count."""

    def __init__(self, store: Store[Pair], key: Key) -> None:
        self._store, self._key = store, str(key)
        self._pairs: dict[str, dict[str, list[Pair]]] = {}
        for entry in store.entries:
            if entry.key == self._key:
                self._keep(entry.id, entry.value)
        store.add()  # fails before measuring if the file cannot be written

    def _keep(self, work: str, pair: Pair) -> None:
        self._pairs.setdefault(work, {}).setdefault(pair.call, []).append(pair)

    def add(self, work: str, pair: Pair) -> None:
        """Store a pair in memory and append it to the file; raise ShardbenchError on failure."""
        self._keep(work, pair)
        self._store.add(Entry(work, self._key, pair))

    def pairs(self, key: str) -> int:
        """Return the smallest number of pairs that a pass of work `key` has; 0 for unknown work."""
        return min(map(len, self._pairs.get(key, {}).values()), default=0)

    def ratios(self, key: str) -> dict[str, Ratio]:
        """Return, by pass of work `key`, its time over the reference's, with a 99 % interval."""
        return {
            call: estimate_ratio([p.seconds for p in pairs], [p.reference for p in pairs])
            for call, pairs in self._pairs[key].items()
        }

    def _all(self) -> list[Pair]:
        return [pair for calls in self._pairs.values() for held in calls.values() for pair in held]

    @property
    def seconds(self) -> float:
        """The total seconds of all stored calls, including those of the reference."""
        return sum(pair.seconds + pair.reference for pair in self._all())

    @property
    def reference_ms(self) -> float:
        """The reference's median milliseconds, the factor that converts ratios to milliseconds."""
        return 1000 * statistics.median(pair.reference for pair in self._all())


class Stopwatch:
    """Time each pass right after the reference, so that slow spells of the machine affect both."""

    def __init__(
        self,
        bench: Workbench[Any],
        times: TimesFile,
        clock: SystemClock,
        on_progress: OnProgress = lambda measured, done, of: None,
    ) -> None:
        self.device, self.times, self.clock = bench.device, times, clock
        self.on_progress = on_progress
        self._seconds = attrgetter("wall_s" if bench.is_asynchronous else "cpu_s")
        (self._reference,) = self._prepared(bench.reference).values()

    def _prepared(self, work: TimedWork) -> Mapping[str, Prepared[Any]]:
        """Prepare the passes of a work, and call each once to warm up."""
        passes = work.passes()
        for prepared in passes.values():
            timed_turn(prepared, self.clock)
        return passes

    def time(self, work: TimedWork, pairs: int) -> None:
        """Time a work until at least `pairs` pairs of each pass are stored."""
        if self.times.pairs(work.key) >= pairs:
            return
        passes = self._prepared(work)
        while self.times.pairs(work.key) < pairs:
            for name, prepared in passes.items():
                reference, seconds = (
                    self._seconds(timed_turn(call, self.clock))
                    for call in (self._reference, prepared)
                )
                if min(reference, seconds) <= 0:
                    raise ShardbenchError("A call is too short for the clock.")
                self.times.add(work.key, Pair(name, seconds, reference))

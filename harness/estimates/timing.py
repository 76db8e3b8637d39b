"""Time computations beside a reference, and calibrate a machine by them."""

import statistics
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct

from harness.contract import Prepared
from harness.contract.estimates import Design, FittedMachine, TimedWork, Workbench
from harness.measuring.timing.turns import (
    SystemClock,
    objects_frozen,
    timed_turn,
)
from harness.measuring.timing.verdict import estimate_ratio
from harness.model.cell import Ratio
from harness.model.errors import ShardbenchError
from harness.store.keys import Key
from harness.store.lines import Entry, Store

_ROUNDS, _PAIRS = 2, 3  # of a calibration, and in each round

Seconds = Annotated[float, Meta(gt=0)]
OnProgress = Callable[[str, int, int], None]
"""A callback that gets the name of the present work, the number done, and the total."""


class Pair(Struct, frozen=True):
    """The seconds of one pass (`call`) of a work, and of the reference right before it."""

    call: str
    seconds: Seconds
    reference: Seconds


class Stopwatch:
    """Time each pass right after the reference, so that slow spells of the machine affect both.

    Pairs of times are stored; those with another key do not count.
    """

    def __init__(
        self,
        bench: Workbench[Any],
        store: Store[Pair],
        key: Key,
        clock: SystemClock,
        on_progress: OnProgress = lambda measured, done, of: None,
    ) -> None:
        self.device, self.clock, self.on_progress = bench.device, clock, on_progress
        self._store, self._key = store, str(key)
        self._all: list[Pair] = []
        self._by_work: dict[str, dict[str, list[Pair]]] = {}  # and by pass
        for entry in store.entries:
            if entry.key == self._key:
                self._keep(entry.id, entry.value)
        store.add()  # fails before measuring if the file cannot be written
        self._seconds = attrgetter("wall_s" if bench.is_asynchronous else "cpu_s")
        (self._reference,) = self._prepared(bench.reference).values()

    def _keep(self, key: str, pair: Pair) -> None:
        self._all.append(pair)
        self._by_work.setdefault(key, {}).setdefault(pair.call, []).append(pair)

    def _prepared(self, work: TimedWork) -> Mapping[str, Prepared[Any]]:
        """Prepare the passes of a work, and call each once to warm up."""
        passes = work.passes()
        for prepared in passes.values():
            timed_turn(prepared, self.clock)
        return passes

    def time(self, work: TimedWork, pairs: int) -> None:
        """Time a work until at least `pairs` pairs of each pass are stored."""
        if self.pairs(work.key) >= pairs:
            return
        passes = self._prepared(work)
        while self.pairs(work.key) < pairs:
            for name, prepared in passes.items():
                reference = self._seconds(timed_turn(self._reference, self.clock))
                seconds = self._seconds(timed_turn(prepared, self.clock))
                if min(reference, seconds) <= 0:
                    raise ShardbenchError("A call is too short for the clock.")
                pair = Pair(name, seconds, reference)
                self._keep(work.key, pair)
                self._store.add(Entry(work.key, self._key, pair))

    def pairs(self, key: str) -> int:
        """Return the smallest number of pairs that a pass of work `key` has; 0 for unknown work."""
        return min(map(len, self._by_work.get(key, {}).values()), default=0)

    def ratios(self, key: str) -> dict[str, Ratio]:
        """Return, by pass of work `key`, its time over the reference's, with a 99 % interval."""
        return {
            call: estimate_ratio([p.seconds for p in pairs], [p.reference for p in pairs])
            for call, pairs in self._by_work[key].items()
        }

    @property
    def seconds(self) -> float:
        """The total seconds of all stored calls, including those of the reference."""
        return sum(pair.seconds + pair.reference for pair in self._all)

    @property
    def reference_ms(self) -> float:
        """The reference's median milliseconds, the factor that converts ratios to milliseconds."""
        return 1000 * statistics.median(pair.reference for pair in self._all)


@objects_frozen()
def calibrate(design: Design, stopwatch: Stopwatch) -> FittedMachine:
    """Measure the computations of a design in rounds, and fit a machine's parameters to them."""
    for turn in range(1, _ROUNDS + 1):
        for number, work in enumerate(design.works):
            stopwatch.on_progress(f"kernels, round {turn} of {_ROUNDS}", number, len(design.works))
            stopwatch.time(work, turn * _PAIRS)
    scale = stopwatch.reference_ms
    milliseconds = {
        work.key: {call: ratio.value * scale for call, ratio in stopwatch.ratios(work.key).items()}
        for work in design.works
    }
    return design.fit(milliseconds, scale)

"""Time computations beside a reference, calibrate a machine by them, and time steps of ranks."""

import csv
import io
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct

from harness.contract import Prepared
from harness.contract.estimates import Design, FittedMachine, TimedWork, Workbench
from harness.execution.child import run
from harness.execution.worker import Failed, Stage
from harness.measuring.timing.turns import (
    SystemClock,
    long_lived_objects_left_alone,
    timed_turn,
)
from harness.measuring.timing.verdict import estimate_ratio
from harness.model.cell import Environment, Ratio
from harness.model.errors import ShardbenchError
from harness.model.topology import Topology
from harness.store.keys import Key
from harness.store.lines import Entry, Store

_ROUNDS, _PAIRS = 2, 3  # of a calibration, and in each round
_WARM_UP, _STEPS = 3, 10
_SECONDS = 300.0

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
        # The pairs by work and pass.
        self._pairs: dict[str, dict[str, list[Pair]]] = defaultdict(lambda: defaultdict(list))
        for entry in store.entries:
            if entry.key == self._key:
                self._pairs[entry.id][entry.value.call].append(entry.value)
        store.add()  # fails before measuring if the file cannot be written
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
        if self.pairs(work.key) >= pairs:
            return
        passes = self._prepared(work)
        while self.pairs(work.key) < pairs:
            for name, prepared in passes.items():
                reference, seconds = (
                    self._seconds(timed_turn(call, self.clock))
                    for call in (self._reference, prepared)
                )
                if min(reference, seconds) <= 0:
                    raise ShardbenchError("A call is too short for the clock.")
                pair = Pair(name, seconds, reference)
                self._pairs[work.key][name].append(pair)
                self._store.add(Entry(work.key, self._key, pair))

    def pairs(self, key: str) -> int:
        """Return the smallest number of pairs that a pass of work `key` has; 0 for unknown work."""
        return min(map(len, self._pairs[key].values()), default=0)

    def ratios(self, key: str) -> dict[str, Ratio]:
        """Return, by pass of work `key`, its time over the reference's, with a 99 % interval."""
        return {
            call: estimate_ratio([p.seconds for p in pairs], [p.reference for p in pairs])
            for call, pairs in self._pairs[key].items()
        }

    def _all(self) -> list[Pair]:
        return [pair for calls in self._pairs.values() for kept in calls.values() for pair in kept]

    @property
    def seconds(self) -> float:
        """The total seconds of all stored calls, including those of the reference."""
        return sum(pair.seconds + pair.reference for pair in self._all())

    @property
    def reference_ms(self) -> float:
        """The reference's median milliseconds, the factor that converts ratios to milliseconds."""
        return 1000 * statistics.median(pair.reference for pair in self._all())


@long_lived_objects_left_alone()
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


def topology_file(
    name: str, base: Topology, machine: FittedMachine, device: str, environment: Environment
) -> str:
    """Return a topology file as CSV text: the measured columns, and the other columns of `base`."""
    date = (environment.started or "")[:10]
    packages = ", ".join(
        f"{package} {version}" for package, version in environment.packages.items()
    )
    measured = f"measured {date} on {device} ({environment.cpu}) with {packages}"
    columns = {
        field.name: str(value)
        for field in fields(Topology)
        if field.name != "gpus" and (value := getattr(base, field.name)) not in (None, "")
    }
    columns |= {"name": name, "confidence": "measured", **machine.columns}
    kept = "capacities and links"
    columns["source"] = f"shardbench calibrate: {measured}; {kept} of {base.name}: {base.source}"
    lines = [
        f"# Written by `shardbench calibrate`: {measured}.",
        f"# Not measured: {kept}, which are those of {base.name}.",
    ]
    for found in machine.figures:
        span = f", 95 % interval {found.low:.4g} to {found.high:.4g}" * (found.low < found.high)
        unit = f" {found.unit}" if found.unit else ""
        lines.append(f"# {found.name}: {found.value:.4g}{unit}, measured{span}")
    for error in machine.errors:
        lines.append(
            f"# {error.form} on {error.purpose} ({error.points} points): "
            f"geometric mean error {error.error:.1%}"
        )
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(columns)
    writer.writerow(columns.values())
    return "\n".join(lines) + "\n" + rows.getvalue()


Play = Callable[[Any], AbstractContextManager[Callable[[], None]]]
"""A function of a module. Its context sets a rank up, and yields a function that runs a step."""


@dataclass(frozen=True, slots=True)
class SlowestRank:
    """The slowest rank of a decision, and its seconds a step: a median for each process."""

    rank: int
    seconds: tuple[float, ...]

    @property
    def milliseconds(self) -> float:
        """The median of the processes' times."""
        return 1000 * statistics.median(self.seconds)

    def over(self, other: "SlowestRank") -> Ratio:
        """Return the ratio of the times to another's, paired by the order of measuring."""
        return estimate_ratio(self.seconds, other.seconds)


def time_slowest(
    play: Play, decisions: Sequence[dict[int, Any]], again: int, is_asynchronous: bool
) -> list[SlowestRank]:
    """Time every rank of each decision once, and the slowest rank of each `again` times, in turns.

    `decisions` have the picklable argument of `play` by rank. Wall time is measured on an
    asynchronous device, else CPU time. Raises ShardbenchError if a rank fails.
    """

    def seconds(job: Any) -> float:
        found = run(steps, play, job, is_asynchronous, first=Stage("playing a rank", _SECONDS))
        if isinstance(found, Failed):
            raise ShardbenchError(f"Playing a rank failed: {found.reason}")
        return float(found)

    once = [{rank: seconds(job) for rank, job in jobs.items()} for jobs in decisions]
    slowest = [max(times, key=times.__getitem__) for times in once]
    measured: list[list[float]] = [[] for _ in decisions]
    turns = [*range(len(decisions))]
    for _ in range(again):
        for number in turns:
            measured[number].append(seconds(decisions[number][slowest[number]]))
        turns.reverse()
    return [SlowestRank(*one) for one in zip(slowest, map(tuple, measured), strict=True)]


def steps(play: Play, job: Any, is_asynchronous: bool, *_report: object) -> float:
    """Return the median seconds of a step of a rank that this process plays."""
    clock = SystemClock()
    with play(job) as step:
        turns = [timed_turn(Prepared(step), clock) for _ in range(_WARM_UP + _STEPS)]
    times = [turn.wall_s if is_asynchronous else turn.cpu_s for turn in turns]
    return statistics.median(times[_WARM_UP:])

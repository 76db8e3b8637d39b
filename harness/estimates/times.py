"""Times of works beside a reference, kept in a file so that what was interrupted goes on."""

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from harness.contract import Measured, Prepared
from harness.contract.abilities.validation import OnBench, TimedWork
from harness.measuring.timing.clock import Clock
from harness.measuring.timing.times import Times
from harness.measuring.timing.turns import timed_turn
from harness.model.cell import Ratio
from harness.model.declared import checked
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import read_file, replace_file

Seconds = Annotated[float, Meta(gt=0)]
Settings = Mapping[str, str | float]
Told = Callable[[str, int, int], None]
"""Is told what is measured, how many are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How times are taken, and the file that keeps them.

    What is measured again with the same settings goes on with them, unless it is to be `fresh`.
    """

    path: Path
    settings: Settings
    clock: Clock
    told: Told = lambda doing, done, of: None
    fresh: bool = False

    def file(self) -> "TimesFile":
        """Open the file; raises UsageError where it is damaged."""
        return TimesFile(self.path, self.settings, self.fresh)


class Pair(Struct, frozen=True):
    """Seconds of a pass of a work, and of the reference right before it."""

    key: str
    call: str
    seconds: Seconds
    reference: Seconds


class TimesFile:
    """Pairs of times by work and pass, one JSON line each behind a line of settings.

    A file of the same settings is gone on with, and a last line that a kill left torn is dropped.
    """

    def __init__(self, path: Path, settings: Settings, fresh: bool = False) -> None:
        self._path = path
        self._pairs: dict[tuple[str, str], list[Pair]] = {}
        head = json.dumps({"settings": settings}, sort_keys=True)
        lines = [] if fresh or not path.exists() else read_file(path).decode().split("\n")
        self.was_interrupted = bool(lines) and lines[0] == head
        kept = [head]
        if self.was_interrupted:
            for number, line in enumerate(lines[1:-1], start=2):  # behind the last is no line
                self._keep(checked(_parsed(line, path, number), Pair, f"{path}, line {number}"))
                kept.append(line)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, "".join(f"{line}\n" for line in kept))
        except OSError as error:
            raise ShardbenchError(f"{path} cannot be written: {error.strerror}.") from None

    def _keep(self, pair: Pair) -> None:
        self._pairs.setdefault((pair.key, pair.call), []).append(pair)

    def add(self, pair: Pair) -> None:
        """Keep a pair, here and in the file."""
        self._keep(pair)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(to_builtins(pair)) + "\n")
        except OSError as error:
            raise ShardbenchError(f"{self._path} cannot be written: {error.strerror}.") from None

    def count(self, key: str, call: str) -> int:
        """Return how many pairs there are of a pass of a work."""
        return len(self._pairs.get((key, call), ()))

    def calls(self, key: str) -> list[str]:
        """Return the passes of a work that were timed."""
        return [call for held, call in self._pairs if held == key]

    def least(self, key: str) -> int:
        """Return how many pairs there are of each pass of a work."""
        return min((self.count(key, call) for call in self.calls(key)), default=0)

    @property
    def seconds(self) -> float:
        """Return how long all calls took, in seconds."""
        return sum(p.seconds + p.reference for pairs in self._pairs.values() for p in pairs)

    @property
    def reference_ms(self) -> float:
        """Return the median of the reference in milliseconds, which turns ratios into times."""
        held = [pair.reference for pairs in self._pairs.values() for pair in pairs]
        return 1000 * statistics.median(held)

    def ratio(self, key: str, call: str) -> Ratio:
        """Return the ratio of a pass of a work to the reference, with its interval at 99 %."""
        work, reference = Times(), Times()
        for number, pair in enumerate(self._pairs[key, call]):
            work.add(number, pair.seconds)
            reference.add(number, pair.reference)
        found = work.ratio_to(reference)
        assert found is not None
        return found


def _parsed(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise UsageError(f"{path}, line {number}: it is damaged; --fresh measures anew.") from None


class Stopwatch:
    """Times passes of works, each right behind the reference: a slow spell falls on both."""

    def __init__(self, bench: OnBench, clock: Clock, file: TimesFile) -> None:
        self._bench, self._clock, self._file = bench, clock, file
        self._reference = {
            name: self._watched(each) for name, each in bench.reference.passes().items()
        }
        for each in self._reference.values():
            timed_turn(each, clock)

    def prepare(self, work: TimedWork) -> dict[str, Prepared[Any]]:
        """Make a work ready, each of its passes called once."""
        passes = {name: self._watched(each) for name, each in work.passes().items()}
        for each in passes.values():
            timed_turn(each, self._clock)
        return passes

    def time(self, key: str, passes: Mapping[str, Prepared[Any]], pairs: int) -> None:
        """Time passes until there are so many pairs of each."""
        (reference,) = self._reference.values()
        while left := [name for name in passes if self._file.count(key, name) < pairs]:
            for name in left:
                beside = timed_turn(reference, self._clock).cpu_s
                took = timed_turn(passes[name], self._clock).cpu_s
                if min(beside, took) <= 0:
                    raise ShardbenchError("A call is too short for the clock.")
                self._file.add(Pair(key, name, took, beside))

    def _watched(self, prepared: Prepared[Any]) -> Prepared[Any]:
        """Return calls whose wall time counts, where the device works beside the CPU."""
        if not self._bench.is_asynchronous:
            return prepared
        return Prepared(
            partial(_by_wall, prepared.run, self._clock),
            prepared.installed,
            prepared.close,
            prepared.renew,
        )


def _by_wall(run: Callable[[], Any], clock: Clock) -> Measured[None]:
    started = clock.wall()
    run()
    took = clock.wall() - started
    return Measured(None, took, took)

"""Ways to time a block of calls: in turns, in one process or in forks, or side by side."""

import gc
import itertools
import math
import mmap
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from harness.contract import Prepared
from harness.execution.forks import Fork, Send, listen
from harness.execution.worker import Note
from harness.measuring.timing.clock import Clock
from harness.measuring.timing.turns import Observer, Sample, Turn, timed_turn

BLOCK_SECONDS = 0.3
"""Seconds of timing in one forked process."""

_LOOK_SECONDS = 0.1
_MOST_NICE = 19
_WEIGHT_OF_NICE = 1.25  # Linux divides a process's share of its core by this for each nice level
# A turn is short if the longest takes over 20 times as long. The forks of short turns get 20 % of
# the core together, and the others another 4 levels of niceness, so that short turns come first.
_FAR_SHORTER, _STEPS_BEHIND, _SHARE_OF_SHORT = 20, 4, 0.2
_MOST_PIECES, _MOST_PIECE_BYTES = 500, 4096


class Variants(NamedTuple):
    """The prepared variants to time, with the number of calls in a turn of each.

    `seconds` is the expected duration of a turn, including entering the variant's context.
    """

    prepared: Mapping[str, Prepared[Any]]
    calls: Mapping[str, int]
    seconds: Mapping[str, float]
    clock: Clock
    observer: Observer

    def turn(self, name: str) -> Turn:
        """Time one turn of variant `name`."""
        self.observer.turn_begins(name)
        return timed_turn(self.prepared[name], self.clock, self.calls[name])


def in_turns(variants: Variants, names: Sequence[str], _: random.Random) -> list[Sample]:
    """Time a turn of each variant in the order of `names`, then another in reverse order."""
    samples = []
    for name in (*names, *reversed(names)):
        turn = variants.turn(name)
        variants.observer.turn_ended(name, turn.decision)
        samples.append(Sample(name, turn.cpu_s, turn.wall_s, turn.thread_cpu_s))
    return samples


class InForks:
    """Time each block of turns in a new fork, so that blocks differ in their memory layout."""

    def __init__(self, seconds: float = BLOCK_SECONDS) -> None:
        self._seconds_of_block = seconds

    def __call__(
        self, variants: Variants, names: Sequence[str], rng: random.Random
    ) -> list[Sample]:
        """Time rounds of turns in one fork until its seconds are over; return all samples."""

        seed = rng.random()  # drawn here, because all forks would draw the same numbers

        def work(_: Send) -> list[Sample]:
            rng.seed(seed)
            kept = _shifted_memory(rng)
            until = time.monotonic() + self._seconds_of_block
            order = list(names)
            for name in order:  # untimed: first writes to shared pages copy them into the fork
                variants.observer.turn_ended(name, variants.turn(name).decision)
            samples: list[Sample] = []
            while not samples or time.monotonic() < until:
                rng.shuffle(order)
                for name in (*order, *reversed(order)):
                    turn = variants.turn(name)
                    samples.append(Sample(name, turn.cpu_s, turn.wall_s, turn.thread_cpu_s))
            for name in order:
                variants.observer.turn_ended(name, variants.turn(name).decision)
            del kept
            return samples

        with Fork(work, variants.observer.report) as fork:
            samples: list[Sample] = fork.result()
        return samples


class SideBySide:
    """Time the variants in forks that share one core and start together.

    All forks run at the same time, so a change of the machine's speed affects all alike. A fork's
    share of the core is proportional to the duration of its turn, so all turns end at about the
    same time. Each fork continues until the last one has done its turns; unfinished turns are
    dropped. So no fork has the core to itself while it is timed.

    The durations of warm-up calls are inexact, and wrong shares triple the noise. So shares are
    updated after each block, and a first block with wrong shares is repeated, unless `compares` is
    False: then there is no reference to compare with.

    A turn that is far shorter than the longest, or has several calls, would be interrupted often
    and run with cold caches. Such a fork keeps its normal priority, and sleeps between turns.

    With `one_core_each` the forks run on different cores instead, to measure the benefit of
    sharing.
    """

    def __init__(
        self,
        cores: Sequence[int],
        seconds: float = BLOCK_SECONDS,
        compares: bool = True,
        one_core_each: bool = False,
    ) -> None:
        self._cores, self._seconds_of_block, self._compares = cores, seconds, compares
        self._one_core_each = one_core_each
        self._blocks = 0
        self._took: dict[str, list[float]] = {}

    def __call__(
        self, variants: Variants, names: Sequence[str], rng: random.Random
    ) -> list[Sample]:
        """Time one turn of each variant in its own fork, or several turns if they are short."""
        is_first = self._compares and not self._blocks
        while True:
            shares = self._shares(variants, names)
            samples = self._time_block(variants, names, rng, shares)
            for sample in samples:
                self._took.setdefault(sample.name, []).append(sample.turn_s)
            if not is_first or self._shares(variants, names) == shares:
                return samples
            is_first = False

    def _seconds(self, variants: Variants, name: str) -> float:
        """Return the median seconds of past turns, or the expected seconds before the first."""
        took = self._took.get(name)
        return statistics.median(took) if took else variants.seconds[name]

    def _shares(self, variants: Variants, names: Sequence[str]) -> dict[str, int]:
        """Return the niceness to add for each variant, so that all turns end at about one time.

        Short turns, whose forks sleep between them, have 0.
        """
        if self._one_core_each:
            return dict.fromkeys(names, 1)
        seconds = {name: self._seconds(variants, name) for name in names}
        longest = max(seconds.values())
        shares = {
            name: 1 + round(math.log(longest / turn_s, _WEIGHT_OF_NICE))
            for name, turn_s in seconds.items()
        }
        short = [
            name
            for name, turn_s in seconds.items()
            if longest > _FAR_SHORTER * turn_s or (turn_s < longest and variants.calls[name] > 1)
        ]
        if short:
            shares = {name: min(_MOST_NICE, step + _STEPS_BEHIND) for name, step in shares.items()}
        return shares | dict.fromkeys(short, 0)

    def _time_block(
        self,
        variants: Variants,
        names: Sequence[str],
        rng: random.Random,
        shares: Mapping[str, int],
    ) -> list[Sample]:
        self._blocks += 1
        observer = variants.observer
        longest = max(self._seconds(variants, name) for name in names)
        turns = max(1, math.ceil(self._seconds_of_block / longest))
        done = mmap.mmap(-1, len(names))  # shared with the forks: 1 once a fork has its turns
        short = sum(not steps for steps in shares.values())
        rest = short / _SHARE_OF_SHORT - 1  # a short turn's pause, in durations of the turn
        held, release = os.pipe()
        seed = rng.random()  # drawn here, because all forks would draw the same numbers

        def side(place: int, name: str) -> Callable[[Send], None]:
            def work(send: Send) -> None:
                rng.seed(f"{seed} {place}")
                kept = _shifted_memory(rng)
                _touch_all_objects()
                self._take_share(place, shares[name])
                send(None)
                os.read(held, 1)
                needed = turns if shares[name] else 1
                for count in itertools.count(1):
                    before = time.process_time()
                    turn = variants.turn(name)
                    turn_s = time.process_time() - before
                    if count > needed and all(done[:]):
                        break  # this turn ended after the block, so it is dropped
                    if count in (1, needed):
                        observer.turn_ended(name, turn.decision)
                    send(Sample(name, turn.cpu_s, None, turn.thread_cpu_s, turn_s))
                    done[place] = count >= needed
                    if not shares[name]:
                        time.sleep(rest * turn_s)
                signal.pause()
                del kept

            return work

        observer.together(len(names))
        with ExitStack() as stack:
            for end in (held, release):
                stack.callback(os.close, end)
            forks = {
                name: stack.enter_context(
                    Fork(
                        side(place, name),
                        observer.report,
                        True,
                        partial(observer.turn_begins, name),
                    )
                )
                for place, name in enumerate(names)
            }
            ready: set[str] = set()
            while len(ready) < len(forks):
                heard = listen(forks, _LOOK_SECONDS)
                ready |= {name for name, message in heard if message == Note(None)}
            os.write(release, bytes(len(forks)))
            samples: list[Sample] = []
            announced = ""
            while not all(done[:]):
                samples += _samples(listen(forks, _LOOK_SECONDS))
                left = [
                    name for name, has_ended in zip(names, done[:], strict=True) if not has_ended
                ]
                if len(left) == 1 and left[0] != announced:
                    observer.turn_begins(announced := left[0])
            while heard := listen(forks, 0.0):
                samples += _samples(heard)
        return samples

    def _take_share(self, place: int, steps: int) -> None:
        """Pin this process to its core, and raise its niceness by `steps`."""
        at = self._blocks + place if self._one_core_each else self._blocks
        os.sched_setaffinity(0, {self._cores[at % len(self._cores)]})
        os.nice(steps)


def _samples(heard: Sequence[tuple[str, Any]]) -> list[Sample]:
    return [
        message.content
        for _, message in heard
        if isinstance(message, Note) and message.content is not None
    ]


def _shifted_memory(rng: random.Random) -> list[bytearray]:
    """Allocate memory of random sizes, so that later objects have other addresses in each fork."""
    return [
        bytearray(rng.randrange(1, _MOST_PIECE_BYTES)) for _ in range(rng.randrange(_MOST_PIECES))
    ]


def _touch_all_objects() -> None:
    """Visit all objects, so that their shared pages are copied into this fork before timing."""
    gc.unfreeze()
    gc.get_referents(*gc.get_objects())
    gc.freeze()


def cores() -> list[int]:
    """Return the ids of the cores that this process can be pinned to; empty without OS support."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []

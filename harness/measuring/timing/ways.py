"""The ways to time a block of calls: in turns, in one process or in forks, or side by side."""

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
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harness.contract import Prepared
from harness.execution.forks import Fork, Send, listen
from harness.execution.worker import Note, Report
from harness.measuring.request import AFTER_CALL, CALL, TOGETHER
from harness.measuring.timing.turns import SystemClock, Turn, timed_turn

BLOCK_SECONDS = 0.3
"""Seconds of timing in one forked process."""

_LOOK_SECONDS = 0.1
_MOST_NICE = 19
_WEIGHT_OF_NICE = 1.25  # Linux divides a process's share of its core by this for each nice level
# A turn is short if the longest takes over 20 times as long. The forks of short turns get 20 % of
# the core together, and the others another 4 levels of niceness, so that short turns come first.
_FAR_SHORTER, _STEPS_BEHIND, _SHARE_OF_SHORT = 20, 4, 0.2
_MOST_PIECES, _MOST_PIECE_BYTES = 500, 4096


@dataclass(slots=True)
class Timing:
    """Prepared variants to time, and the functions to call meanwhile; by default they do nothing.

    `begins` is called with each stage, and with the name of its variant; or with the number of
    processes that share a core, or the seconds that calls in a fork are expected to take. `check`
    is called with a variant's name and decision after a turn. On `report`, forks send messages to
    the parent process. By variant, `calls` is the number of calls in a turn, and `seconds` the
    expected duration of a turn, including entering the variant's context.
    """

    prepared: Mapping[str, Prepared[Any]]
    clock: SystemClock = field(default_factory=SystemClock)
    begins: Callable[..., None] = lambda stage, name="", processes=1, lasts_s=0.0: None
    check: Callable[[str, Any], None] = lambda name, decision: None
    report: Report | None = None
    calls: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def turn(self, name: str, is_checked: bool = False) -> Turn:
        """Time a turn of variant `name`; return it without its decision, which may be checked.

        In a fork, the stage of the variant is only announced if the turn fails.
        """
        try:
            turn = timed_turn(self.prepared[name], self.clock, self.calls[name])
            if is_checked:
                self.check(name, turn.decision)
        except BaseException:
            self.begins(CALL, name)
            raise
        return turn._replace(decision=None)


TimeBlock = Callable[[Timing, Sequence[str], random.Random], dict[str, list[Turn]]]
"""Time a block of turns of the named variants; return each variant's turns."""


def in_turns(timing: Timing, names: Sequence[str], _: random.Random) -> dict[str, list[Turn]]:
    """Time a turn of each variant in the order of `names`, then another in reverse order."""
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for name in (*names, *reversed(names)):
        timing.begins(CALL, name)
        turn = timed_turn(timing.prepared[name], timing.clock, timing.calls[name])
        timing.begins(AFTER_CALL, name)
        timing.check(name, turn.decision)
        turns[name].append(turn._replace(decision=None))
    return turns


def in_forks(
    seconds: float, timing: Timing, names: Sequence[str], rng: random.Random
) -> dict[str, list[Turn]]:
    """Time rounds of turns for `seconds` in a new fork, so that blocks differ in memory layout."""
    seed = rng.random()  # drawn here, because all forks would draw the same numbers

    def work(_: Send) -> dict[str, list[Turn]]:
        rng.seed(seed)
        kept = _shifted_memory(rng)
        until = time.monotonic() + seconds
        order = list(names)
        for name in order:  # untimed: first writes to shared pages copy them into the fork
            timing.turn(name, is_checked=True)
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        while not turns[names[0]] or time.monotonic() < until:
            rng.shuffle(order)
            for name in (*order, *reversed(order)):
                turns[name].append(timing.turn(name))
        for name in order:
            timing.turn(name, is_checked=True)
        del kept
        return turns

    # Each variant has an untimed turn, two timed ones at least, and one more to check.
    lasts_s = seconds + 4 * sum(timing.seconds[name] for name in names)
    timing.begins(TOGETHER, lasts_s=lasts_s)
    with Fork(work, timing.report) as fork:
        turns: dict[str, list[Turn]] = fork.result()
    return turns


class SideBySide:
    """Time the variants in forks that share one core and start together.

    A change of the machine's speed then affects all alike. A fork's share of the core is
    proportional to the duration of its turn, so all turns end at about the same time; each fork
    goes on until the last one has done its turns, and unfinished turns are dropped. So no fork has
    the core to itself while it is timed.

    Durations of warm-up calls are inexact, and wrong shares triple the noise. So shares are updated
    after each block, and a first block with wrong shares is repeated, if it `compares` timing.

    A turn that is far shorter than the longest, or has several calls, would be interrupted often
    and run with cold caches. Such a fork keeps its normal priority, and sleeps between turns.
    """

    def __init__(
        self, cores: Sequence[int], seconds: float = BLOCK_SECONDS, compares: bool = True
    ) -> None:
        self._cores, self._seconds_of_block, self._compares = cores, seconds, compares
        self._blocks = 0
        self._took: dict[str, list[float]] = {}

    def __call__(
        self, timing: Timing, names: Sequence[str], rng: random.Random
    ) -> dict[str, list[Turn]]:
        """Time one turn of each variant in its own fork, or several turns if they are short."""
        is_first = self._compares and not self._blocks
        while True:
            shares = self._shares(timing, names)
            turns = self._time_block(timing, names, rng, shares)
            for name in names:
                self._took.setdefault(name, []).extend(turn.turn_s for turn in turns[name])
            if not is_first or self._shares(timing, names) == shares:
                return turns
            is_first = False

    def _seconds(self, timing: Timing, names: Sequence[str]) -> dict[str, float]:
        """Return the median seconds of past turns, or the expected seconds before the first."""
        return {
            name: statistics.median(self._took.get(name) or [timing.seconds[name]])
            for name in names
        }

    def _shares(self, timing: Timing, names: Sequence[str]) -> dict[str, int]:
        """Return the niceness to add for each variant, so that all turns end at about one time.

        Short turns, whose forks sleep between them, have 0.
        """
        seconds = self._seconds(timing, names)
        longest = max(seconds.values())
        short = [
            name
            for name, turn_s in seconds.items()
            if longest > _FAR_SHORTER * turn_s or (turn_s < longest and timing.calls[name] > 1)
        ]
        behind = _STEPS_BEHIND if short else 0
        shares = {
            name: min(_MOST_NICE, 1 + behind + round(math.log(longest / turn_s, _WEIGHT_OF_NICE)))
            for name, turn_s in seconds.items()
        }
        return shares | dict.fromkeys(short, 0)

    def _time_block(
        self, timing: Timing, names: Sequence[str], rng: random.Random, shares: Mapping[str, int]
    ) -> dict[str, list[Turn]]:
        self._blocks += 1
        longest = max(self._seconds(timing, names).values())
        turns_of_fork = max(1, math.ceil(self._seconds_of_block / longest))
        done = mmap.mmap(-1, len(names))  # shared with the forks: 1 once a fork has its turns
        short = sum(not steps for steps in shares.values())
        rest = short / _SHARE_OF_SHORT - 1  # a short turn's pause, in durations of the turn
        waiting, release = os.pipe()
        seed = rng.random()  # drawn here, because all forks would draw the same numbers

        def work(place: int, name: str, send: Send) -> None:
            # 1. Move this fork's memory, and take its share of the core.
            rng.seed(f"{seed} {place}")
            kept = _shifted_memory(rng)
            _touch_all_objects()
            os.sched_setaffinity(0, {self._cores[self._blocks % len(self._cores)]})
            os.nice(shares[name])
            # 2. Wait until all forks are ready.
            send(None)
            os.read(waiting, 1)
            # 3. Take turns until the last fork has done its own.
            needed = turns_of_fork if shares[name] else 1
            for count in itertools.count(1):
                turn = timing.turn(name, is_checked=count in (1, needed))
                if count > needed and all(done[:]):
                    break  # this turn ended after the block, so it is dropped
                send((name, turn))
                done[place] = count >= needed
                if not shares[name]:
                    time.sleep(rest * turn.turn_s)
            signal.pause()
            del kept

        def heard(seconds: float) -> list[Any]:
            messages = [message for _, message in listen(forks, seconds)]
            return [message.content for message in messages if isinstance(message, Note)]

        timing.begins(TOGETHER, processes=len(names))
        with ExitStack() as stack:
            stack.callback(os.close, waiting)
            stack.callback(os.close, release)
            forks = {
                name: stack.enter_context(
                    Fork(
                        partial(work, place, name),
                        timing.report,
                        is_apart=True,
                        failing=partial(timing.begins, CALL, name),
                    )
                )
                for place, name in enumerate(names)
            }
            ready = 0
            while ready < len(forks):
                ready += len(heard(_LOOK_SECONDS))
            os.write(release, bytes(len(forks)))
            turns: dict[str, list[Turn]] = {name: [] for name in names}
            announced = ""
            while not all(done[:]):
                for name, turn in heard(_LOOK_SECONDS):
                    turns[name].append(turn)
                left = [
                    name for name, has_ended in zip(names, done[:], strict=True) if not has_ended
                ]
                if len(left) == 1 and left[0] != announced:
                    announced = left[0]
                    timing.begins(CALL, announced)
            while messages := heard(0.0):
                for name, turn in messages:
                    turns[name].append(turn)
        return turns


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

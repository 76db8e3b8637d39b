"""A simulated machine with a switching speed, and calls on it.

The speed switches every 10 to 300 milliseconds, by so much that a pair of neighbouring calls
differs by 15 %. Each process has a memory layout of its own, which changes a call by 0.6 %.
"""

import math
import random
from collections.abc import Sequence

from harness.measuring.timing.turns import Turn

PAIR = 0.15
LAYOUT = 0.006
SLICE = 0.003
FORK = 0.02


class NoisyMachine:
    """A core with a switching speed; `wall` returns its elapsed time in seconds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.until = 0.0
        self.speed = 1.0

    def wall(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        """Do work that takes `seconds` at speed 1; return the seconds that it takes here."""
        started = self.now
        while seconds > 1e-12:
            if self.now >= self.until:
                self.speed = math.exp(self.rng.gauss(0, PAIR / math.sqrt(2)))
                self.until = self.now + self.rng.uniform(0.01, 0.3)
            spent = min(seconds / self.speed, self.until - self.now)
            self.now += spent
            seconds -= spent * self.speed
        return self.now - started


class Calls:
    """Calls of variants on a noisy machine; `seconds` is each variant's time at speed 1."""

    def __init__(self, machine: NoisyMachine, seconds: dict[str, float]) -> None:
        self.machine, self.seconds = machine, seconds

    def _laid_out(self, names: Sequence[str]) -> dict[str, float]:
        self.machine.now += FORK
        rng = self.machine.rng
        return {name: self.seconds[name] * math.exp(rng.gauss(0, LAYOUT)) for name in names}

    def in_turns(self, _, names: Sequence[str], rng: random.Random) -> dict[str, list[Turn]]:
        """Return turns in one process, for 0.3 seconds."""
        costs = self._laid_out(names)
        order, until = list(names), self.machine.now + 0.3
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        while not turns[names[0]] or self.machine.now < until:
            rng.shuffle(order)
            for name in (*order, *reversed(order)):
                turns[name].append(turn(self.machine.work(costs[name])))
        return turns

    def side_by_side(self, _, names: Sequence[str], __) -> dict[str, list[Turn]]:
        """Return turns of calls that share a core by time slices, until each variant has one."""
        costs = self._laid_out(names)
        longest = max(costs.values())
        done, spent = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        while not all(turns.values()):
            for name in names:
                share = SLICE * costs[name] / longest
                spent[name] += self.machine.work(share)
                done[name] += share
                if done[name] >= costs[name]:
                    turns[name].append(turn(spent[name]))
                    done[name], spent[name] = done[name] - costs[name], 0.0
        return turns


def turn(seconds: float) -> Turn:
    return Turn(seconds, seconds, None)

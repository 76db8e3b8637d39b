"""Releases that take turns on the same problems, each in a child process of its own."""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import ShardbenchError
from harness.machine import environment
from harness.model.topology import Topology
from harness.naming import ProblemId
from harness.releases.declaration import Releases
from harness.releases.history import History, NotRun, Round, Times, counts_of, times_of
from harness.releases.installing import Place
from harness.upstreams import Upstream

LEAST_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """How long to measure a problem.

    `repeat` rounds are made, or fewer where they take longer than `seconds`, but two in any case. A
    release that does not answer within `budget` seconds is not run.
    """

    repeat: int
    seconds: float
    budget: float


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem to measure: its id as results have it, the workload as given, the machines."""

    problem: ProblemId
    workload: str
    topology: Topology

    def request(self, kind: str) -> dict[str, Any]:
        """Return what a driver is asked of this problem."""
        return {"kind": kind, "workload": self.workload, "topology": asdict(self.topology)}


def environment_of(releases: Releases) -> dict[str, Any]:
    """Return what a history is measured with; `driver` changes with the code that drives it."""
    found = environment(0)
    packages = {k: v for k, v in found["packages"].items() if k != releases.library}
    kept = ("python", "machine", "cpu", "cores", "system", "started")
    return {**{key: found[key] for key in kept}, "packages": packages, "driver": _digest(releases)}


def _digest(releases: Releases) -> str:
    digest = hashlib.sha256()
    for path in sorted(releases.driver.parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


class Measuring:
    """Measures places on problems, one after the other; close it to end the children."""

    def __init__(
        self, releases: Releases, history: History, rule: Rule, tell: Callable[[str], None]
    ) -> None:
        self._releases = releases
        self._history = history
        self._rule = rule
        self._tell = tell
        self._children: dict[str, Upstream] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Measuring":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, asked: Asked, places: Iterable[Place]) -> None:
        """Count each release on a problem where that is not known, then time all in rounds.

        What cannot run is kept as such, and the others go on. What is known already of the same
        releases is not measured again.
        """
        alive: list[str] = []
        problem = str(asked.problem)
        for place in places:
            if place.release not in self._children:
                upstream = Upstream(
                    f"{self._releases.library} {place.release}", self._releases.driver, place.folder
                )
                self._children[place.release] = self._stack.enter_context(upstream)
            if (problem, place.release) in self._history.counts or self._count(asked, place):
                alive.append(place.release)
        self._time(asked, alive)

    def _count(self, asked: Asked, place: Place) -> bool:
        problem = str(asked.problem)
        answer = self._ask(asked, place.release, "counts")
        if answer is None:
            return False
        if answer.get("release") != place.release:
            self._give_up(problem, place.release, f"its folder holds {answer.get('release')}.")
            return False
        try:
            counts = counts_of(problem, place.release, answer)
        except ValueError as error:
            self._give_up(problem, place.release, f"its driver's answer {error}.")
            return False
        self._history.add(counts)
        self._tell(
            f"{place.release} on {problem}: {counts.all_calls:,} calls in {self._releases.profiled}"
        )
        return True

    def _time(self, asked: Asked, alive: list[str]) -> None:
        problem = str(asked.problem)
        started = time.monotonic()
        warm: set[str] = set()
        while alive:
            done = len(self._history.rounds_of(problem, set(alive)))
            late = time.monotonic() - started > self._rule.seconds
            if done >= self._rule.repeat or (late and done >= LEAST_ROUNDS):
                return
            # The other way round each time, so that a drift of the machine's speed cancels.
            times = self._turns(asked, alive if done % 2 == 0 else alive[::-1], warm)
            if times is None:
                failed = {name for p, name in self._history.not_run if p == problem}
                alive = [release for release in alive if release not in failed]
                continue
            self._history.add(Round(problem, times, _load()))
            self._tell(f"round {done + 1} of {self._rule.repeat} on {problem}")

    def _turns(
        self, asked: Asked, releases: Sequence[str], warm: set[str]
    ) -> Mapping[str, Times] | None:
        """Return the times of one turn of each, or None where one failed."""
        times = {}
        for release in releases:
            if release not in warm:  # a first call is no like the others
                if self._ask(asked, release, "times") is None:
                    return None
                warm.add(release)
            answer = self._ask(asked, release, "times")
            if answer is None:
                return None
            try:
                times[release] = times_of(answer)
            except ValueError as error:
                self._give_up(str(asked.problem), release, f"its driver's answer {error}.")
                return None
        return times

    def _ask(self, asked: Asked, release: str, kind: str) -> dict[str, Any] | None:
        try:
            return self._children[release].ask(asked.request(kind), self._rule.budget)
        except ShardbenchError as error:
            self._give_up(str(asked.problem), release, str(error))
            return None

    def _give_up(self, problem: str, release: str, why: str) -> None:
        why = why.rstrip(".") + "."
        self._history.add(NotRun(problem, release, why))
        self._tell(f"{release} on {problem} is not run: {why}")


def _load() -> float:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return round(os.getloadavg()[0] / (cores or 1), 2)


def kept_releases(library: str, folder: Path) -> list[str]:
    """Return the releases of a library that a folder holds, by the names of their folders."""
    if not folder.is_dir():
        return []
    beginning = f"{library}-"
    names = [each.name for each in folder.iterdir() if each.is_dir()]
    return [name.removeprefix(beginning) for name in names if name.startswith(beginning)]

"""Estimate the remaining time of a run from its pieces that have ended."""

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from statistics import fmean

from harness.measuring.timing.forecast import expected_seconds
from harness.model.settings import SamplingRule

TIMING = "@timing"
"""The piece of a comparison after all checks; no variant has an @ in its name."""


@dataclass(slots=True)
class Piece:
    """A piece of a run; pieces of one `kind` take times in proportion to their `size`.

    `expected_s` is an estimate of its own of all its seconds, None without one. `began` is when it
    began, None before.
    """

    kind: str
    size: float = 1.0
    expected_s: float | None = None
    began: float | None = None


class TimeLeft:
    """Estimates the remaining seconds of a run from the times of its pieces that have ended."""

    def __init__(
        self,
        pieces: Mapping[str, Piece],
        at_once: int = 1,
        pace: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the pieces by name; `at_once` of them run in parallel.

        `pace` is the seconds for a size of 1 until a piece has ended, None if that is unknown.
        """
        self._left, self._at_once = dict(pieces), max(1, at_once)
        self._first_pace, self._now = pace, now
        self._ended: list[tuple[Piece, float]] = []

    @property
    def names(self) -> list[str]:
        """The names of the pieces that have not ended."""
        return list(self._left)

    def begins(self, name: str) -> None:
        """Record that a piece begins, perhaps again."""
        if name in self._left:
            self._left[name].began = self._now()

    def expects(self, name: str, seconds: float) -> None:
        """Record an estimate of the remaining seconds of one piece."""
        if name in self._left:
            piece = self._left[name]
            piece.expected_s = self._spent(piece) + seconds

    def ended(self, name: str) -> float:
        """Record that a piece has ended, and return the seconds that it took."""
        if name not in self._left:
            return 0.0
        piece = self._left.pop(name)
        self._ended.append((piece, took := self._spent(piece)))
        return took

    def seconds(self) -> float | None:
        """Return the estimated seconds until all pieces have ended; None if it is unknown."""
        left = []
        for piece in self._left.values():
            whole = self._whole(piece)
            if whole is None:
                return None
            left.append(max(0.0, whole - self._spent(piece)))
        return max(sum(left) / self._at_once, *left, 0.0)

    def _spent(self, piece: Piece) -> float:
        return 0.0 if piece.began is None else self._now() - piece.began

    def _whole(self, piece: Piece) -> float | None:
        """Return the seconds that a piece takes: by its own estimate, else at the usual pace.

        That is the pace of the ended pieces of its kind, or of all if there are none of its kind.
        """
        if piece.expected_s is not None:
            return piece.expected_s
        ended = [pair for pair in self._ended if pair[0].kind == piece.kind] or self._ended
        size = sum(other.size for other, _ in ended)
        pace = sum(took for _, took in ended) / size if size else self._first_pace
        return None if pace is None else pace * piece.size


class ComparisonTime(TimeLeft):
    """Estimates the remaining seconds of a comparison: its checks, then `TIMING`."""

    def __init__(
        self,
        checks: Collection[str],
        timed: Collection[str],
        rule: SamplingRule,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the names of the variants to check, and of those to be timed as well."""
        # The first check also waits for its process's imports, so it says little about the others.
        pieces = {
            name: Piece("check" if number else "first check") for number, name in enumerate(checks)
        }
        super().__init__({**pieces, TIMING: Piece("timing", expected_s=0.0)}, now=now)
        self._timed, self._rule = set(timed), rule
        self._calls: list[float] = []
        self._set_up = math.inf

    def check_ended(self, name: str, call_s: float | None) -> None:
        """Record that a check has ended; `call_s` is its call's seconds, None if it failed."""
        took = self.ended(name)
        if call_s is None or name not in self._timed:
            return
        self._calls.append(call_s)
        self._set_up = min(self._set_up, max(0.0, took - call_s))
        others = [fmean(self._calls)] * len(self._timed.intersection(self.names))
        self.expects(TIMING, self._set_up + expected_seconds([*self._calls, *others], self._rule))

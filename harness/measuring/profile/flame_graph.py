"""Flame graphs as data: seconds of a call by stack, and how those of two variants differ."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

# Differences of less than this share are noise, as they are in a measurement.
_NOISE_FLOOR = 0.03
_STANDARD_ERRORS = 2.0
# What takes less of the whole than this is too narrow to be seen.
_SMALLEST_SHARE = 1 / 5000
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
BUILT_IN = "<built-in>"


class Frame(NamedTuple):
    """A function by module and qualified name, whatever line of it runs."""

    module: str
    name: str

    @property
    def text(self) -> str:
        """Both as one name, e.g. `copy.deepcopy` or `dict.get (built-in)`."""
        if self.module == BUILT_IN:
            return f"{self.name} (built-in)"
        return f"{self.module}.{self.name}" if self.module else self.name

    @property
    def is_part_of_caller(self) -> bool:
        """Whether its time counts as its caller's: a built-in, a comprehension."""
        return self.module == BUILT_IN or self.name.endswith(_COMPREHENSIONS)


Stack = tuple[Frame, ...]


class Weight(NamedTuple):
    """Seconds of a call, and the variance that sampling gives them, in square seconds."""

    seconds: float
    variance: float

    def plus(self, other: "Weight") -> "Weight":
        """Return the sum of two weights that were sampled independently."""
        return Weight(self.seconds + other.seconds, self.variance + other.variance)


NOTHING = Weight(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a variant's calls went. All seconds are wall seconds of one call.

    `stacks` is time by stack, outermost frame first; the empty stack is the call itself. `calls`
    were profiled, and one took `unprofiled_s` without the profiler, just before. `drift` is the
    standard error of the mean over the turns, as a share of it; 0 where there was one. Where the
    variant works in another process, which is not seen here, it `is_elsewhere`.
    """

    family: str
    variant: str
    stacks: Mapping[Stack, Weight]
    calls: int
    unprofiled_s: float
    drift: float = 0.0
    is_elsewhere: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of a call under the profiler."""
        return math.fsum(weight.seconds for weight in self.stacks.values())

    @property
    def overhead(self) -> float:
        """How many times as long the profiler made a call; NaN where that is not known."""
        return self.seconds / self.unprofiled_s if self.unprofiled_s > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Profiled:
    """A profile, and the text of its files by suffix: `html`, `speedscope.json`, `txt`."""

    profile: Profile
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class PairedSeconds:
    """Seconds of a call in a variant and in the one that it is set `against`, and their noise."""

    seconds: float
    against: float
    noise: float

    @property
    def difference(self) -> float:
        """Seconds more than in the other variant."""
        return self.seconds - self.against

    @property
    def differs(self) -> bool:
        """Whether the difference is beyond the noise."""
        return abs(self.difference) > self.noise

    @property
    def stands_out(self) -> bool:
        """Whether it differs even among hundreds, where a few pass the noise by chance."""
        return abs(self.difference) > 2 * self.noise


class Comparer:
    """Sets the time of two profiles' frames against each other; one profile may be both of them.

    A difference is noise below 2 sqrt(n) of n samples (counts of chance), below the noise floor, or
    below the difference between turns of one variant.
    """

    def __init__(self, profile: Profile, against: Profile) -> None:
        self.profiles = (profile, against)
        names = dict.fromkeys((profile.variant, against.variant))
        # Whatever functions the calls themselves are, they are one frame.
        self._root = Frame("", f"{profile.family}/{' against '.join(names)}")

    def total(self) -> PairedSeconds:
        """Set the whole calls against each other."""
        return self._pair(
            *(reduce(Weight.plus, one.stacks.values(), NOTHING) for one in self.profiles)
        )

    def shares(self) -> list["Share"]:
        """Return the part of each frame, wherever it stands, the one that differs most first.

        It is the frames' own time that is sorted by; where it is equal, the longer one is first.
        """
        # For each profile, by frame.
        own: list[dict[Frame, Weight]] = [{}, {}]
        whole: list[dict[Frame, Weight]] = [{}, {}]
        for profile, own_times, whole_times in zip(self.profiles, own, whole, strict=True):
            for called, weight in profile.stacks.items():
                stack = (self._root, *called)
                # A built-in or a comprehension works for another function.
                owner = next(frame for frame in reversed(stack) if not frame.is_part_of_caller)
                own_times[owner] = own_times.get(owner, NOTHING).plus(weight)
                for frame in set(stack):  # one that calls itself takes its time once
                    whole_times[frame] = whole_times.get(frame, NOTHING).plus(weight)
        found = [
            Share(
                frame,
                self._pair(*(times.get(frame, NOTHING) for times in own)),
                self._pair(*(times.get(frame, NOTHING) for times in whole)),
            )
            for frame in whole[0] | whole[1]
        ]
        return sorted(
            found,
            key=lambda share: (-abs(share.own.difference), -share.own.seconds, share.frame),
        )

    def tree(self) -> list["Node"]:
        """Return the stacks of both as one tree, each after its parent.

        Stacks too narrow to be seen are left out; their time stays in that of their callers.
        """
        mine, theirs = (one.stacks for one in self.profiles)
        wider = {
            stack: max(mine.get(stack, NOTHING), theirs.get(stack, NOTHING))
            for stack in {(): NOTHING} | {**mine, **theirs}
        }
        widths, my_whole, their_whole = map(_with_calls, (wider, mine, theirs))
        nodes: list[Node] = []
        place: dict[Stack, int] = {}
        for stack in sorted(widths):  # a caller comes before what it calls
            width = widths[stack].seconds
            if width < _SMALLEST_SHARE * widths[()].seconds:
                continue  # nor are its children kept, which are narrower
            place[stack] = len(nodes)
            own = self._pair(mine.get(stack, NOTHING), theirs.get(stack, NOTHING))
            whole = self._pair(my_whole.get(stack, NOTHING), their_whole.get(stack, NOTHING))
            frame = stack[-1] if stack else self._root
            nodes.append(Node(frame, place[stack[:-1]], own, whole, width))
        return nodes

    def _pair(self, mine: Weight, theirs: Weight) -> PairedSeconds:
        profile, against = self.profiles
        drift = (profile.drift * mine.seconds) ** 2 + (against.drift * theirs.seconds) ** 2
        noise = _STANDARD_ERRORS * math.sqrt(mine.variance + theirs.variance + drift)
        floor = _NOISE_FLOOR * max(mine.seconds, theirs.seconds)
        return PairedSeconds(mine.seconds, theirs.seconds, max(noise, floor))


@dataclass(frozen=True, slots=True)
class Share:
    """A frame's part in a call: `own` in itself, `whole` with all that it calls.

    Its time in built-in functions and comprehensions is its own.
    """

    frame: Frame
    own: PairedSeconds
    whole: PairedSeconds


@dataclass(frozen=True, slots=True)
class Node:
    """A stack in a tree: its last frame, the place of its parent, and its seconds.

    The root is its own parent. `width` is the larger of both own times, in seconds, summed over
    all that it calls, so that children never take more room than their parent.
    """

    frame: Frame
    parent: int
    own: PairedSeconds
    whole: PairedSeconds
    width: float


def _with_calls(own: Mapping[Stack, Weight]) -> dict[Stack, Weight]:
    """Return for each stack and its callers the sum over all that they call."""
    whole: dict[Stack, Weight] = {}
    for stack, weight in own.items():
        for depth in range(len(stack) + 1):
            caller = stack[:depth]
            whole[caller] = whole.get(caller, NOTHING).plus(weight)
    return whole

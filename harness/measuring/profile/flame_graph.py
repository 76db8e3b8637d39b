"""The data of flame graphs: seconds of a call by stack, and differences between two variants."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

# Relative differences below this are noise; measured ratios have the same noise floor.
_NOISE_FLOOR = 0.03
_STANDARD_ERRORS = 2.0
# A stack with a smaller share of the whole than this is too narrow to be visible.
_SMALLEST_SHARE = 1 / 5000
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
BUILT_IN = "<built-in>"


class Frame(NamedTuple):
    """A function in a stack, by module and qualified name; line numbers are ignored."""

    module: str
    name: str

    @property
    def text(self) -> str:
        """Module and name in one text, e.g. `copy.deepcopy` or `dict.get (built-in)`."""
        if self.module == BUILT_IN:
            return f"{self.name} (built-in)"
        return f"{self.module}.{self.name}" if self.module else self.name

    @property
    def brief(self) -> str:
        """Like `text`, with the last part of the module's name alone: `planners.Planner.plan`."""
        return self._replace(module=self.module.rpartition(".")[2]).text


Stack = tuple[Frame, ...]


class Weight(NamedTuple):
    """Seconds of a call, and the sampling variance of that figure in square seconds."""

    seconds: float
    variance: float

    def plus(self, other: "Weight") -> "Weight":
        """Return the sum of two independently sampled weights; variances add up."""
        return Weight(self.seconds + other.seconds, self.variance + other.variance)


NOTHING = Weight(0.0, 0.0)
Weights = tuple[Weight, Weight]
"""The weights in the two profiles that are compared."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a variant's calls. All seconds are wall seconds of one call.

    `stacks` has the own time of each stack, outermost frame first; the empty stack is the call
    itself. `calls` is the number of profiled calls, and `unprofiled_s` the time of a call without
    the profiler. `drift` is the standard error of the mean over turns, relative to the mean; 0 for
    one turn. `unseen` is the share of the CPU time that other threads and processes took; they are
    not profiled.
    """

    family: str
    variant: str
    stacks: Mapping[Stack, Weight]
    calls: int
    unprofiled_s: float
    drift: float = 0.0
    unseen: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of a call under the profiler."""
        return math.fsum(weight.seconds for weight in self.stacks.values())

    @property
    def overhead(self) -> float:
        """The ratio of a call's time with the profiler to its time without; NaN if unknown."""
        return self.seconds / self.unprofiled_s if self.unprofiled_s > 0 else math.nan


@dataclass(frozen=True, slots=True)
class PairedSeconds:
    """The `seconds` per call in one variant, and in the variant `against` which it is compared.

    `noise` is the difference, in seconds, that chance alone may cause.
    """

    seconds: float
    against: float
    noise: float

    @property
    def difference(self) -> float:
        """The excess over the other variant, in seconds; negative if it takes less."""
        return self.seconds - self.against

    @property
    def differs(self) -> bool:
        """Whether the difference exceeds the noise."""
        return abs(self.difference) > self.noise

    @property
    def stands_out(self) -> bool:
        """Whether the difference exceeds twice the noise: of hundreds, some exceed it by chance."""
        return abs(self.difference) > 2 * self.noise


@dataclass(frozen=True, slots=True)
class Share:
    """A frame's time in a call: `own` without the functions that it calls, `whole` with them."""

    frame: Frame
    own: PairedSeconds
    whole: PairedSeconds


@dataclass(frozen=True, slots=True)
class Node(Share):
    """A stack in a tree: its last frame, its parent's index in the list of nodes, and its times.

    The root is its own parent. `width`, in seconds, is the sum over the stack and all stacks below
    of the larger of the two profiles' own times. So children are never wider than their parent.
    """

    parent: int
    width: float


class Comparer:
    """Compare the time of frames in two profiles; both may be the same profile.

    A difference is noise if it is below the noise floor, or below two standard errors. These come
    from sampling (the square root of the number of samples), and from the drift between turns.
    """

    def __init__(self, profile: Profile, against: Profile) -> None:
        self.profiles = (profile, against)
        names = dict.fromkeys((profile.variant, against.variant))
        # The two variants' outermost functions differ, but are shown as one root frame.
        self._root = Frame("", f"{profile.family}/{' against '.join(names)}")
        self._stacks: dict[Stack, Weights] = {
            stack: (profile.stacks.get(stack, NOTHING), against.stacks.get(stack, NOTHING))
            for stack in {(): NOTHING, **profile.stacks, **against.stacks}
        }

    def total(self) -> PairedSeconds:
        """Compare the total times of a call."""
        return self.tree()[0].whole

    def shares(self) -> list[Share]:
        """Return each frame's times, summed over all stacks with it.

        Time in built-in functions and comprehensions that a function calls is part of its own
        time. The frames are sorted by falling difference in own time, then by falling own time.
        """
        own: dict[Frame, Weights] = {}
        whole: dict[Frame, Weights] = {}
        for called, weights in self._stacks.items():
            stack = (self._root, *called)
            owner = next(
                frame
                for frame in reversed(stack)
                if frame.module != BUILT_IN and not frame.name.endswith(_COMPREHENSIONS)
            )
            _add(own, owner, weights)
            for frame in set(stack):  # a recursive function's time counts once
                _add(whole, frame, weights)
        shares = [
            Share(frame, self._pair(own.get(frame, (NOTHING, NOTHING))), self._pair(weights))
            for frame, weights in whole.items()
        ]
        shares.sort(key=lambda s: (-abs(s.own.difference), -s.own.seconds, s.frame))
        return shares

    def tree(self) -> list[Node]:
        """Return the stacks of both profiles as one tree; each node comes after its parent.

        Stacks too narrow to be visible are left out; their callers' `whole` still includes them.
        """
        whole: dict[Stack, Weights] = {}
        widths: dict[Stack, float] = defaultdict(float)
        for stack, weights in self._stacks.items():
            for depth in range(len(stack) + 1):
                _add(whole, stack[:depth], weights)
                widths[stack[:depth]] += max(weights).seconds
        nodes: list[Node] = []
        place: dict[Stack, int] = {}
        for stack in sorted(whole):  # a stack sorts after its prefixes, which are its callers
            if widths[stack] < _SMALLEST_SHARE * widths[()]:
                continue  # its children are left out too, because they are narrower
            place[stack] = len(nodes)
            own = self._pair(self._stacks.get(stack, (NOTHING, NOTHING)))
            frame = stack[-1] if stack else self._root
            parent = place[stack[:-1]]
            nodes.append(Node(frame, own, self._pair(whole[stack]), parent, widths[stack]))
        return nodes

    def _pair(self, weights: Weights) -> PairedSeconds:
        """Return the seconds in both profiles, and their noise."""
        sides = zip(self.profiles, weights, strict=True)
        variance = sum(w.variance + (profile.drift * w.seconds) ** 2 for profile, w in sides)
        floor = _NOISE_FLOOR * max(weight.seconds for weight in weights)
        noise = max(_STANDARD_ERRORS * math.sqrt(variance), floor)
        return PairedSeconds(weights[0].seconds, weights[1].seconds, noise)


def _add(times: dict[Any, Weights], key: Frame | Stack, weights: Weights) -> None:
    mine, theirs = times.get(key, (NOTHING, NOTHING))
    times[key] = mine.plus(weights[0]), theirs.plus(weights[1])

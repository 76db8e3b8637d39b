"""The cheapest conversion: Dijkstra's algorithm over the true costs of the steps.

Dijkstra 1959, "A note on two problems in connexion with graphs". Costs of steps are not negative,
so a spec that leaves the heap has its least cost: no later path can be cheaper.
"""

import heapq
from typing import NamedTuple

from planners.dimspec.conversion.costs import NOTHING, CommSpec, Cost
from planners.dimspec.conversion.interned import (
    NO_CONVERSION,
    InternedSearch,
    InternedSpec,
    check_same_tensor,
)
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.transitions import Masks


class _Reached(NamedTuple):
    """The cheapest path to a spec: its cost, its last step, and the path before that step."""

    spec: InternedSpec
    cost: Cost
    before: "_Reached | None"
    comm: CommSpec | None


class CheapestSearch(InternedSearch):
    """Conversions of least total cost; ties go to the fewest steps, then to the first found."""

    def __init__(self) -> None:
        super().__init__()
        self._reached: dict[InternedSpec, dict[Masks, _Reached]] = {}
        self._conversions: dict[tuple[InternedSpec, Masks], Conversion] = {}

    def convert(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Return the cheapest conversion of one spec into another of the same tensor."""
        key = source, target.masks
        found = self._conversions.get(key)
        if found is None:
            found = self._conversions[key] = self.search(source, target)
        return found

    def search(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Return the cheapest conversion; raises UsageError for specs of different tensors."""
        check_same_tensor(source, target)
        if source.masks == target.masks:
            return NO_CONVERSION
        reached = self._reached.get(source)
        if reached is None:
            reached = self._reached[source] = _reach_all(source)
        last: _Reached | None = reached[target.masks]
        path, comms, cost = [], [], reached[target.masks].cost
        while last is not None:
            path.append(last.spec)
            if last.comm is not None:
                comms.append(last.comm)
            last = last.before
        return Conversion(tuple(reversed(path)), tuple(reversed(comms)), cost)


def _reach_all(source: InternedSpec) -> dict[Masks, _Reached]:
    """Return the cheapest path from a spec to every sharding of its tensor."""
    settled: dict[Masks, _Reached] = {}  # invariant: the least cost, final once it is here
    found = 0  # breaks ties of the heap, so that it never compares paths
    open_ = [(0.0, 0, 0, _Reached(source, NOTHING, None, None))]
    while open_:
        total, steps, _, reached = heapq.heappop(open_)
        if reached.spec.masks in settled:  # a path at most as costly came first
            continue
        settled[reached.spec.masks] = reached
        for step in source.tensor.steps(reached.spec):
            if step.spec.masks not in settled:
                found += 1
                cost = reached.cost.plus(step.cost)
                further = _Reached(step.spec, cost, reached, step.comm)
                heapq.heappush(open_, (total + step.cost.total, steps + 1, found, further))
    return settled

"""Find the cheapest conversion: Dijkstra's algorithm over the true costs of the steps.

Dijkstra 1959, "A note on two problems in connexion with graphs". Step costs are not negative, so
the first path to a spec that leaves the heap is a cheapest one: no later path costs less.
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
    """A path to `spec`, linked from its end: total cost, last step, and the path before it."""

    spec: InternedSpec
    cost: Cost
    before: "_Reached | None"
    comm: CommSpec | None


class CheapestSearch(InternedSearch):
    """Find conversions of least total cost; on ties, of fewest steps, then the first found."""

    def __init__(self) -> None:
        super().__init__()
        self._reached: dict[InternedSpec, dict[Masks, _Reached]] = {}
        self._conversions: dict[tuple[InternedSpec, Masks], Conversion] = {}

    def convert(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Return the cheapest conversion between two specs of one tensor, from a cache if known."""
        key = source, target.masks
        found = self._conversions.get(key)
        if found is None:
            found = self._conversions[key] = self.search(source, target)
        return found

    def search(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Compute the cheapest conversion; raises UsageError for specs of different tensors."""
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
    """Return the cheapest path from a spec to every sharding of its tensor; keys are masks."""
    settled: dict[Masks, _Reached] = {}  # invariant: entries are cheapest paths and never change
    found = 0  # breaks ties in the heap, so that it never compares paths
    open_ = [(0.0, 0, 0, _Reached(source, NOTHING, None, None))]
    while open_:
        total, steps, _, reached = heapq.heappop(open_)
        if reached.spec.masks in settled:  # an earlier path costs no more
            continue
        settled[reached.spec.masks] = reached
        for step in source.tensor.steps(reached.spec):
            if step.spec.masks not in settled:
                found += 1
                cost = reached.cost.plus(step.cost)
                further = _Reached(step.spec, cost, reached, step.comm)
                heapq.heappush(open_, (total + step.cost.total, steps + 1, found, further))
    return settled

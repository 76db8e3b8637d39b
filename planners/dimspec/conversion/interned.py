"""Find the conversions of module `greedy`, or the cheapest ones, with numbered layouts and tables.

A layout is a partition with its order of dimensions. Tensors with equally divisible dimensions
share the tables of steps and of nearest steps. Invariant: each layout of a tensor has exactly one
spec.
"""

import heapq
from itertools import combinations, count
from typing import Any

from harness.contract import InfeasibleDecision
from planners.dimspec.conversion.steps import (
    MOST_STEPS,
    NO_CONVERSION,
    NOTHING,
    CommSpec,
    Conversion,
    Cost,
    Mesh,
    Partition,
    after_step,
    candidate_steps,
    difference_points,
    step_cost,
)

Axes = tuple[int, ...]

_new_tuple: Any = tuple.__new__  # makes a named tuple in half the time of its own constructor


class Layouts:
    """All layouts of tensors on meshes of `ndim` axes, numbered from 0 (replicated), and the steps.

    Args:
        ndim: the number of mesh axes.
        divisible: for each dimension, the sets of mesh axes that divide its size.

    Attributes:
        partitions: by layout, its partition.
        goals: by layout, the layout of the same sharding with its dimensions in increasing order.
        steps: by layout, its possible steps in ColossalAI's order, each with the layout after it.
    """

    def __init__(self, ndim: int, divisible: tuple[frozenset[Axes], ...]) -> None:
        self._ndim = ndim
        self._divisible = divisible
        self.partitions: list[Partition] = [()]
        self.numbers: dict[Partition, int] = {(): 0}
        self.steps: list[list[tuple[CommSpec, int]]] = []
        while len(self.steps) < len(self.partitions):  # breadth-first; `expand` adds partitions
            self.steps.append(self.expand(self.partitions[len(self.steps)]))
        self.goals = [self.numbers[tuple(sorted(partition))] for partition in self.partitions]
        self._ahead = [[layout for _, layout in steps] for steps in self.steps]
        dims = range(len(divisible))
        self._axes = [[dict(p).get(dim, ()) for p in self.partitions] for dim in dims]
        sets = {axes for axes_of_dim in divisible for axes in axes_of_dim}
        self._points = {b: {a: difference_points(a, b) for a in sets} for b in sets}
        self._nearest: dict[int, list[int | None]] = {}

    def expand(self, partition: Partition) -> list[tuple[CommSpec, int]]:
        """Return the steps from a layout; this gives numbers to the layouts that are new."""
        sharded = dict(partition)
        steps = []
        for step in candidate_steps(sharded, len(self._divisible), self._ndim):
            after = after_step(sharded, step)
            if after.get(step.shard_dim, ()) in self._divisible[step.shard_dim]:
                made = tuple(after.items())
                if made not in self.numbers:
                    self.numbers[made] = len(self.partitions)
                    self.partitions.append(made)
                steps.append((step, self.numbers[made]))
        return steps

    def nearest(self, goal: int) -> list[int | None]:
        """Return, for each layout, the one nearest to `goal` of those one step away.

        Of equally near layouts the first counts, as in ColossalAI's search. None marks the layouts
        that shard like `goal`.
        """
        if goal not in self._nearest:
            by_dim = [map(self._points[axes[goal]].__getitem__, axes) for axes in self._axes]
            points = list(map(sum, zip(*by_dim, strict=True)))
            # When it is complete, because other threads read it.
            self._nearest[goal] = [
                min(ahead, key=points.__getitem__) if here else None
                for here, ahead in zip(points, self._ahead, strict=True)
            ]
        return self._nearest[goal]


class Spec:
    """One layout of a tensor. `goal` is the sharding's number, whatever its order of dimensions.

    `steps` are its possible steps, by the layout after them: collective, cost and spec. `paths` is
    the root of the trie of paths from here, and `conversions` has those found, by goal.
    """

    __slots__ = ("conversions", "goal", "layout", "partition", "paths", "steps", "tensor")

    def __init__(self, tensor: "Tensor", layout: int) -> None:
        self.tensor = tensor
        self.layout = layout
        self.partition = tensor.layouts.partitions[layout]
        self.goal = tensor.layouts.goals[layout]
        self.steps: dict[int, tuple[CommSpec, Cost, Spec]] = {}
        self.paths: _Path = (self, Conversion((self.partition,), (), NOTHING), {})
        self.conversions: dict[int, Conversion] = {}


_Path = tuple[Spec, Conversion, dict[int, Any]]
"""A path in the trie: its last spec, the conversion, and longer paths by the layout after it."""


class Tensor:
    """A tensor of `shape` (elements) on a mesh, with its specs and their steps."""

    def __init__(self, mesh: Mesh, shape: tuple[int, ...], layouts: Layouts) -> None:
        self._mesh = mesh
        self._shape = shape
        self.layouts = layouts
        self._specs: dict[int, Spec] = {}

    def spec(self, layout: int) -> Spec:
        """Return the spec of a layout."""
        spec = self._specs.get(layout)
        if spec is None:
            spec = self._specs[layout] = Spec(self, layout)
        return spec

    def steps(self, spec: Spec) -> dict[int, tuple[CommSpec, Cost, Spec]]:
        """Return a spec's `steps`, in ColossalAI's order, computed on first use."""
        if not spec.steps:
            elements = self._mesh.local_elements(self._shape, spec.partition)
            costs: dict[tuple[str, int], Cost] = {}
            steps = {}
            for comm, layout in self.layouts.steps[spec.layout]:
                kind = comm.pattern, comm.logical_process_axis
                if kind not in costs:
                    costs[kind] = step_cost(self._mesh, comm, elements)
                steps[layout] = comm, costs[kind], self.spec(layout)
            spec.steps = steps  # when they are complete, because other threads read them
        return spec.steps


class InternedSearch:
    """Find the same conversions as ColossalAI's search; the caches start empty."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[int, tuple[frozenset[Axes], ...]], Layouts] = {}
        self._tensors: dict[tuple[Mesh, tuple[int, ...]], Tensor] = {}

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> Spec:
        """Return the spec of a partition; raises KeyError if the partition is not possible."""
        tensor = self._tensors.get((mesh, shape))
        if tensor is None:
            ndim = len(mesh.shape)
            sets = [axes for size in range(ndim + 1) for axes in combinations(range(ndim), size)]
            shared_by = [(axes, mesh.devices(axes)) for axes in sets]
            divisible = tuple(
                frozenset(axes for axes, devices in shared_by if size % devices == 0)
                for size in shape
            )
            key = ndim, divisible
            if key not in self._layouts:
                self._layouts[key] = Layouts(*key)
            tensor = self._tensors[mesh, shape] = Tensor(mesh, shape, self._layouts[key])
        return tensor.spec(tensor.layouts.numbers[partition])

    def convert(self, source: Spec, target: Spec) -> Conversion:
        """Return the conversion between two specs of one tensor, from a cache if known."""
        conversion = source.conversions.get(target.goal)
        if conversion is None:
            conversion = source.conversions[target.goal] = self.search(source, target)
        return conversion

    def search(self, source: Spec, target: Spec) -> Conversion:
        """Compute a conversion; raises InfeasibleDecision if MOST_STEPS do not reach the target."""
        if source.goal == target.goal:
            return NO_CONVERSION
        nearest = source.tensor.layouts.nearest(target.goal)
        path, layout = source.paths, nearest[source.layout]
        while layout is not None:
            path = path[2].get(layout) or _lengthen(path, layout)
            layout = nearest[layout]
        return path[1]


def _lengthen(path: _Path, layout: int) -> _Path:
    """Append the step to `layout` to a path in the trie, and return the longer path."""
    here, (partitions, comms, (forward, backward, total)), longer = path
    if len(comms) == MOST_STEPS:
        raise InfeasibleDecision(f"No {MOST_STEPS} steps from {partitions[0]} reach the target.")
    comm, step, spec = (here.steps or here.tensor.steps(here))[layout]
    # ColossalAI adds to the total a cost of the step that includes the total already.
    cost = _new_tuple(
        Cost,
        (
            forward + (forward + step.forward),
            backward + (backward + step.backward),
            total + (total + step.total),
        ),
    )
    conversion = _new_tuple(Conversion, ((*partitions, spec.partition), (*comms, comm), cost))
    longer_path: _Path = (spec, conversion, {})
    longer[layout] = longer_path
    return longer_path


class CheapestSearch(InternedSearch):
    """Find conversions of least total cost; on ties, of fewest steps, then the first found.

    Dijkstra 1959, "A note on two problems in connexion with graphs". Step costs are not negative,
    so the first path to a sharding that leaves the heap is a cheapest one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cheapest: dict[Spec, dict[int, Conversion]] = {}

    def search(self, source: Spec, target: Spec) -> Conversion:
        """Compute a cheapest conversion between two specs of one tensor."""
        if source.goal == target.goal:
            return NO_CONVERSION
        if source not in self._cheapest:
            self._cheapest[source] = _cheapest_from(source)
        return self._cheapest[source][target.goal]


def _cheapest_from(source: Spec) -> dict[int, Conversion]:
    """Return the cheapest conversion from a spec to every sharding of its tensor, by goal."""
    settled: dict[int, Conversion] = {}  # invariant: entries are cheapest and never change
    # Next steps by total cost and number of steps; the third item breaks ties, so that paths are
    # never compared. Each goes on from the conversion in the fourth item.
    heap: list[tuple[float, int, int, Conversion, CommSpec, Cost, Spec]] = []
    numbers = count()

    def settle(spec: Spec, conversion: Conversion) -> None:
        settled[spec.goal] = conversion
        for comm, cost, after in spec.tensor.steps(spec).values():
            if after.goal not in settled:
                total, steps = conversion.cost.total + cost.total, len(conversion.comms) + 1
                step = (total, steps, next(numbers), conversion, comm, cost, after)
                heapq.heappush(heap, step)

    settle(source, Conversion((source.partition,), (), NOTHING))
    while heap:
        *_, before, comm, cost, spec = heapq.heappop(heap)
        if spec.goal not in settled:  # else an earlier path costs no more
            path = (*before.path, spec.partition)
            settle(spec, Conversion(path, (*before.comms, comm), before.cost.plus(cost)))
    return settled

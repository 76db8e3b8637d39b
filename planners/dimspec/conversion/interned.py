"""Find the same conversions as module `search`, with numbered layouts and cached tables.

Tensors with equally divisible dimensions share the tables of steps and of nearest steps. Step
costs are computed once per tensor and mesh, and paths are shared in a trie.
Invariant: each layout of a tensor has exactly one spec object, so equal specs are identical.
"""

from math import prod
from typing import Any, NamedTuple

from harness.contract import UsageError
from planners.dimspec.conversion.costs import NOTHING, CommSpec, Cost, new_tuple, step_cost
from planners.dimspec.conversion.partition import Mesh, Partition, checked_partition, sequence_name
from planners.dimspec.conversion.search import MOST_STEPS, Conversion, no_way
from planners.dimspec.conversion.transitions import ARRIVED, Divisible, Transitions, divisible

_ALL_STEPS = range(MOST_STEPS)

NO_CONVERSION = Conversion((), (), NOTHING)


class InternedSpec:
    """One sharding of a tensor; a tensor has one such object per partition."""

    __slots__ = (
        "beginning",
        "conversions",
        "layout",
        "masks",
        "mesh",
        "nearest",
        "shape",
        "steps",
        "tensor",
    )

    def __init__(self, tensor: "InternedTensor", layout: int) -> None:
        self.tensor = tensor
        self.mesh = tensor.mesh
        self.shape = tensor.shape
        self.layout = layout
        self.masks = tensor.transitions.masks[layout]
        self.conversions: dict[InternedSpec, Conversion] = {}
        self.steps: list[PricedStep] = []
        self.nearest: list[int] = []  # `Transitions.nearest` to this spec, empty until needed
        self.beginning: _Beginning = (self, layout, Conversion((self,), (), NOTHING), {})

    @property
    def partition(self) -> Partition:
        """The sharded dimensions with their mesh axes, in the order of their sharding."""
        return self.tensor.transitions.partition(self.layout)

    def local_shape(self) -> list[int]:
        """Return the shape of one device's shard, in elements."""
        devices = self.tensor.devices
        return [size // devices[mask] for size, mask in zip(self.shape, self.masks, strict=True)]

    def __repr__(self) -> str:
        return sequence_name(len(self.shape), self.partition)


class PricedStep(NamedTuple):
    """A conversion step of a tensor: the collective, its cost, and the spec after the step."""

    comm: CommSpec
    cost: Cost
    spec: InternedSpec


_Beginning = tuple[InternedSpec, int, Conversion, dict[int, Any]]
"""A node of the trie of paths: its last spec, that spec's layout, the path as a conversion, and
the longer paths by the index of their next step. Plain tuples, for speed.
"""


class InternedTensor:
    """A tensor of `shape` (elements) on a mesh, with its specs and their priced steps."""

    def __init__(self, mesh: Mesh, shape: tuple[int, ...], transitions: Transitions) -> None:
        self.mesh = mesh
        self.shape = shape
        self.transitions = transitions
        self.devices = [
            prod(size for axis, size in enumerate(mesh.shape) if mask >> axis & 1)
            for mask in range(1 << len(mesh.shape))
        ]
        self._specs: list[InternedSpec | None] = [None] * len(transitions.masks)

    def spec(self, partition: Partition) -> InternedSpec:
        """Return the spec of a partition; raises PartitionError for an invalid partition."""
        try:
            return self.spec_of(self.transitions.numbers[partition])
        except KeyError:
            counted = checked_partition(self.mesh, self.shape, partition)
            return self.spec_of(self.transitions.numbers[counted])

    def spec_of(self, layout: int) -> InternedSpec:
        """Return the spec with layout number `layout`."""
        found = self._specs[layout]
        if found is None:
            found = self._specs[layout] = InternedSpec(self, layout)
        return found

    def steps(self, spec: InternedSpec) -> list[PricedStep]:
        """Return the steps from a spec, in ColossalAI's order of candidates."""
        if not spec.steps:
            mesh, elements = self.mesh, prod(spec.local_shape())
            costs: dict[int, Cost] = {}
            for comm, kind, layout in self.transitions.steps[spec.layout]:
                if kind not in costs:
                    costs[kind] = step_cost(mesh, comm.pattern, comm.logical_process_axis, elements)
                made = self._specs[layout] or self.spec_of(layout)
                spec.steps.append(new_tuple(PricedStep, (comm, costs[kind], made)))
        return spec.steps

    def search(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Compute the conversion between two specs of this tensor.

        Raises UsageError for specs of different tensors, and InfeasibleDecision if MOST_STEPS
        steps do not reach the target.
        """
        check_same_tensor(source, target)
        if source.masks == target.masks:
            return NO_CONVERSION
        nearest = target.nearest
        if not nearest:
            nearest = target.nearest = self.transitions.nearest(target.masks)
        path, index = source.beginning, nearest[source.layout]
        for _ in _ALL_STEPS:
            # The trie has each path once: take the child for this step, or add it.
            path = path[3].get(index) or self._lengthen(path, index)
            _, layout, conversion, _ = path
            index = nearest[layout]
            if index == ARRIVED:
                return conversion
        raise no_way(source, target)

    def _lengthen(self, path: _Beginning, index: int) -> _Beginning:
        """Append step number `index` to `path` in the trie, and return the longer path."""
        before, _, (specs, comms, total), longer = path
        comm, cost, spec = (before.steps or self.steps(before))[index]
        if comms:
            cost = total.compounded(cost)
        conversion = new_tuple(Conversion, ((*specs, spec), (*comms, comm), cost))
        made: _Beginning = (spec, spec.layout, conversion, {})
        longer[index] = made
        return made


class InternedSearch:
    """Find conversions for any tensors and meshes; the caches start empty."""

    def __init__(self) -> None:
        self._transitions: dict[tuple[int, Divisible], Transitions] = {}
        self._tensors: dict[tuple[Mesh, tuple[int, ...]], InternedTensor] = {}

    def tensor(self, mesh: Mesh, shape: tuple[int, ...]) -> InternedTensor:
        """Return the tensor of a shape on a mesh, the same object on each call."""
        found = self._tensors.get((mesh, shape))
        if found is None:
            key = len(mesh.shape), divisible(mesh, shape)
            if key not in self._transitions:
                self._transitions[key] = Transitions(*key)
            found = InternedTensor(mesh, shape, self._transitions[key])
            self._tensors[mesh, shape] = found
        return found

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> InternedSpec:
        """Return a sharding spec; raises PartitionError for an invalid partition."""
        return self.tensor(mesh, shape).spec(partition)

    def convert(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Return the conversion between two specs of one tensor, from a cache if known."""
        found = source.conversions.get(target)
        if found is None:
            found = source.conversions[target] = source.tensor.search(source, target)
        return found


def check_same_tensor(source: InternedSpec, target: InternedSpec) -> None:
    """Raise UsageError if two specs are of different tensors."""
    if source.tensor is not target.tensor:
        raise UsageError(f"{source} and {target} are specs of different tensors.")

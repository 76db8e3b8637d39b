"""The same conversions by integers: layouts are numbers, steps are tables, specs are shared.

What a search repeats is kept where it may be: one-step transitions and the nearest step to each
target for all tensors that divide alike, costs for each tensor and mesh, paths by their beginnings.
"""

from math import prod
from typing import NamedTuple

from harness.contract import UsageError
from planners.dimspec.conversion.costs import NOTHING, CommSpec, Cost, step_cost
from planners.dimspec.conversion.partition import Mesh, Partition, checked_partition, sequence_name
from planners.dimspec.conversion.search import MOST_STEPS, Conversion, no_way
from planners.dimspec.conversion.transitions import ARRIVED, Divisible, Transitions, divisible

NO_CONVERSION = Conversion((), (), NOTHING)


class InternedSpec:
    """How a tensor is sharded: immutable, one object for each partition of a tensor."""

    __slots__ = ("conversions", "layout", "masks", "steps", "tensor")

    def __init__(self, tensor: "InternedTensor", layout: int) -> None:
        self.tensor = tensor
        self.layout = layout
        self.masks = tensor.transitions.masks[layout]
        self.conversions: dict[InternedSpec, Conversion] = {}
        self.steps: list[PricedStep] = []

    @property
    def mesh(self) -> Mesh:
        """The mesh it is sharded over."""
        return self.tensor.mesh

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor, in elements."""
        return self.tensor.shape

    @property
    def partition(self) -> Partition:
        """The sharded dimensions and their mesh axes, in the order they were sharded in."""
        return self.tensor.transitions.partition(self.layout)

    def local_shape(self) -> list[int]:
        """Return the shape of what one device holds."""
        devices = self.tensor.devices
        return [size // devices[mask] for size, mask in zip(self.shape, self.masks, strict=True)]

    def __repr__(self) -> str:
        return sequence_name(len(self.shape), self.partition)


class PricedStep(NamedTuple):
    """A step of one tensor: what is done, what that costs, and the spec that it makes."""

    comm: CommSpec
    cost: Cost
    spec: InternedSpec


class _Beginning:
    """A path from a source, and those that go on from it by the index of their next step."""

    __slots__ = ("conversion", "longer", "spec")

    def __init__(self, spec: InternedSpec, conversion: Conversion) -> None:
        self.spec = spec
        self.conversion = conversion
        self.longer: dict[int, _Beginning] = {}


class InternedTensor:
    """A tensor of a shape (elements) on a mesh: its specs, what steps cost, what was converted."""

    def __init__(self, mesh: Mesh, shape: tuple[int, ...], transitions: Transitions) -> None:
        self.mesh = mesh
        self.shape = shape
        self.transitions = transitions
        self.devices = [
            prod(size for axis, size in enumerate(mesh.shape) if mask >> axis & 1)
            for mask in range(1 << len(mesh.shape))
        ]
        self._specs: list[InternedSpec | None] = [None] * len(transitions.masks)
        self._sources: dict[InternedSpec, _Beginning] = {}

    def spec(self, partition: Partition) -> InternedSpec:
        """Return the spec of a partition; raises PartitionError where there is none."""
        try:
            return self.spec_of(self.transitions.find(partition))
        except KeyError:
            counted = checked_partition(self.mesh, self.shape, partition)
            return self.spec_of(self.transitions.find(counted))

    def spec_of(self, layout: int) -> InternedSpec:
        """Return the spec of a layout by its number."""
        found = self._specs[layout]
        if found is None:
            found = self._specs[layout] = InternedSpec(self, layout)
        return found

    def steps(self, spec: InternedSpec) -> list[PricedStep]:
        """Return the steps from a spec, in the order of the candidates."""
        if not spec.steps:
            mesh, elements = self.mesh, prod(spec.local_shape())
            spec.steps = [
                PricedStep(
                    CommSpec(pattern, gather_dim, shard_dim, axis),
                    step_cost(mesh, pattern, axis, elements),
                    self.spec_of(layout),
                )
                for pattern, gather_dim, shard_dim, axis, layout in self.transitions.steps[
                    spec.layout
                ]
            ]
        return spec.steps

    def search(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Return the conversion of one spec into another.

        Raises:
            InfeasibleDecision: the target is not reached in MOST_STEPS steps.
            UsageError: they are of different tensors.
        """
        check_same_tensor(source, target)
        if source.masks == target.masks:
            return NO_CONVERSION
        nearest = self.transitions.nearest(target.masks)
        path = self._sources.get(source)
        if path is None:
            path = self._sources[source] = _Beginning(source, Conversion((source,), (), NOTHING))
        for _ in range(MOST_STEPS):
            index = nearest[path.spec.layout]
            path = path.longer.get(index) or self._lengthen(path, index)
            if nearest[path.spec.layout] == ARRIVED:
                return path.conversion
        raise no_way(source, target)

    def _lengthen(self, path: _Beginning, index: int) -> _Beginning:
        """Add a step."""
        comm, cost, spec = self.steps(path.spec)[index]
        specs, comms, total = path.conversion
        conversion = Conversion(
            (*specs, spec), (*comms, comm), total.compounded(cost) if comms else cost
        )
        longer = path.longer[index] = _Beginning(spec, conversion)
        return longer


class InternedSearch:
    """All that is known of tensors and meshes; it begins with nothing."""

    def __init__(self) -> None:
        self._transitions: dict[tuple[int, Divisible], Transitions] = {}
        self._tensors: dict[tuple[Mesh, tuple[int, ...]], InternedTensor] = {}

    def tensor(self, mesh: Mesh, shape: tuple[int, ...]) -> InternedTensor:
        """Return a tensor on a mesh."""
        found = self._tensors.get((mesh, shape))
        if found is None:
            key = len(mesh.shape), divisible(mesh, shape)
            if key not in self._transitions:
                self._transitions[key] = Transitions(*key)
            found = InternedTensor(mesh, shape, self._transitions[key])
            self._tensors[mesh, shape] = found
        return found

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> InternedSpec:
        """Return a sharding spec; raises PartitionError where there is none."""
        return self.tensor(mesh, shape).spec(partition)

    def convert(self, source: InternedSpec, target: InternedSpec) -> Conversion:
        """Return the conversion of one spec into another of the same tensor."""
        found = source.conversions.get(target)
        if found is None:
            found = source.conversions[target] = source.tensor.search(source, target)
        return found


def check_same_tensor(source: InternedSpec, target: InternedSpec) -> None:
    """Raise UsageError where two specs are of different tensors."""
    if source.tensor is not target.tensor:
        raise UsageError(f"{source} and {target} are specs of different tensors.")

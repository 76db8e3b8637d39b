"""Find the strategy that torch would choose for an op on DTensors, without trying all strategies.

On a cache miss torch combines the S strategies for one mesh dim into S^N combinations for N mesh
dims. It builds the specs of each combination, adds up the costs of its collectives, and takes the
cheapest. This module encodes placements as small integers, and builds specs for the winner only. A
combination that wants all inputs in their present placements costs nothing and wins. Without such a
combination, the search chooses a strategy for one mesh dim after the other, cheapest first, and
drops a branch if its lower bound exceeds the best cost so far (branch and bound).

The choice and its costs equal torch's to the last bit. Torch's planner needs at most one collective
for each mesh dim. Its target is the wanted placement or, if outer mesh dims shard the same tensor
dim differently, Replicate. `Operand.cost` adds the same collectives in the same order at torch's
own prices, so the floats are equal. The lower bound takes the cheaper of the two targets, and the
fewest bytes that a rank has at this mesh dim in any plan. Among equal costs the lowest index wins.

Torch's own function handles all other cases: strided shards, symbolic sizes, other shard orders or
meshes, tensors in keyword arguments, ...
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from torch.distributed._functional_collectives import _are_we_tracing
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _collective_utils as prices,
    _redistribute,
)
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils

_expand_exhaustively = utils.expand_to_full_mesh_op_strategy

Codes = tuple[int, ...]
"""Placements as integers: the tensor dim of a Shard, REPLICATE, and below that the Partials."""
REPLICATE = -1
_PARTIAL = {"sum": -2, "avg": -3, "min": -4, "max": -5, "product": -6}

Combination = tuple[int, ...]
"""The index of a strategy for each mesh dim, from the outermost on; perhaps only the first few."""

# Options of torch's function that have no effect if all sizes are numbers and inputs share a mesh.
_WITHOUT_EFFECT = frozenset(("allow_unbacked_sharding", "different_mesh_args"))

# Bounds are summed in another order than costs. This factor keeps them below despite rounding.
_ROUND_DOWN = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Operand:
    """An input tensor of an op, on a mesh of N dims, and the placements that S strategies want."""

    spec: DTensorSpec
    topology: prices.MeshTopoInfo  # the prices of collectives on each mesh dim
    source: Codes  # the present placements (of `spec`), shape (N,)
    targets: Codes  # the placement that each strategy wants on one mesh dim, shape (S,)
    gigabytes: float  # size of the tensor's part on one rank
    mesh_dims: range  # in the order in which torch redistributes: innermost first if sharded
    may_stay: bool  # whether the present placements may leave ranks without elements
    known: dict[Codes, float] = field(default_factory=dict)  # microseconds by target placements

    def is_shardable(self, combination: Combination) -> bool:
        """Whether a combination gives each rank elements, or keeps uneven shards if allowed."""
        target = _at(combination, self.targets)
        return has_enough(self.spec.shape, target, self.topology.mesh_dim_devices) or (
            self.may_stay and self.stays(combination)
        )

    def stays(self, combination: Combination) -> bool:
        """Whether a combination wants this tensor in its present placements."""
        return _at(combination, self.targets) == self.source[: len(combination)]

    def cost(self, target: Codes) -> float:
        """Return the cost of moving this tensor to the placements `target`, in microseconds.

        Equal to torch's `redistribute_cost`; infinite from Shard or another Partial to a Partial.
        """
        if target not in self.known:
            cost, gigabytes = 0.0, self.gigabytes
            for mesh_dim in self.mesh_dims:
                wanted = target[mesh_dim]
                if wanted > REPLICATE and self.mesh_dims.step < 0:
                    for own, new in zip(self.source[:mesh_dim], target, strict=False):
                        # An outer mesh dim shards the same tensor dim, and that changes.
                        if own != new and wanted in (own, new):
                            wanted = REPLICATE
                            break
                if wanted != self.source[mesh_dim]:
                    step, gigabytes = self._step(mesh_dim, wanted, gigabytes)
                    cost += step
            self.known[target] = cost
        return self.known[target]

    def least_costs(self) -> dict[int, list[float]]:
        """Return, by mesh dim, a lower bound on each strategy's cost in microseconds."""
        least, gigabytes = {}, self.gigabytes
        targets = {*self.targets, REPLICATE}
        for mesh_dim in self.mesh_dims:
            # Invariant: under every plan, a rank has at least `gigabytes` before this mesh dim.
            costs = {code: self._step(mesh_dim, code, gigabytes)[0] for code in targets}
            whole = costs[REPLICATE]
            least[mesh_dim] = [min(costs[t], whole) if t >= 0 else costs[t] for t in self.targets]
            if self.source[mesh_dim] <= REPLICATE < max(targets):
                gigabytes /= self.topology.mesh_dim_devices[mesh_dim]
        return least

    def _step(self, mesh_dim: int, target: int, gigabytes: float) -> tuple[float, float]:
        """Return the microseconds of a move on one mesh dim, and a rank's gigabytes after it."""
        topology, source = self.topology, self.source[mesh_dim]
        devices = topology.mesh_dim_devices[mesh_dim]
        if source == target:
            return 0.0, gigabytes
        if source == REPLICATE:
            return 0.0, gigabytes / devices if target > REPLICATE else gigabytes
        if target < REPLICATE:
            return math.inf, gigabytes
        if source < REPLICATE:
            if target == REPLICATE:
                return prices.allreduce_cost(gigabytes, topology, mesh_dim), gigabytes
            return prices.reduce_scatter_cost(gigabytes, topology, mesh_dim), gigabytes / devices
        if target == REPLICATE:
            gigabytes *= devices
            return prices.allgather_cost(gigabytes, topology, mesh_dim), gigabytes
        # Torch prices an all-to-all like this.
        return prices.allgather_cost(gigabytes, topology, mesh_dim) + 1.0, gigabytes


@dataclass(frozen=True, slots=True)
class StrategySearch:
    """A search for the cheapest combination of strategies, one of S on each mesh dim."""

    mesh: DeviceMesh
    strategies: Sequence[Sequence[Placement | None]]  # on one mesh dim: outputs, then inputs
    metas: Sequence[TensorMeta | None]  # the n-th output with placements takes the n-th of these
    operands: Sequence[Operand]
    is_kept: Callable[[Combination], bool]  # torch allows it; False for a prefix excludes the rest

    def winners(self) -> list[Combination]:
        """Return the one or two combinations that torch can choose; [] if none is possible."""
        last = self._first_free((), -1)
        first = self._first_free((REPLICATE,), 1) if last else self._first_cheapest()
        return sorted({combination for combination in (first, last) if combination})

    def _costs(self, combination: Combination) -> list[float]:
        return [operand.cost(_at(combination, operand.targets)) for operand in self.operands]

    def _first_free(self, movable: Codes, step: int) -> Combination:
        """Return the first (`step` 1) or last (-1) combination that costs nothing, or ().

        The combination may change an input's placement only if that is in `movable`.
        """
        axes = []
        for mesh_dim in range(self.mesh.ndim):
            fixed = [held for held in self.operands if held.source[mesh_dim] not in movable]
            own = [held.source[mesh_dim] for held in fixed]
            rows = zip(range(len(self.strategies)), *[held.targets for held in fixed], strict=True)
            axes.append([strategy for strategy, *row in rows if row == own][::step])
        kept = filter(self.is_kept, product(*axes))
        return next((found for found in kept if not any(self._costs(found))), ())

    def _first_cheapest(self) -> Combination:
        """Return the cheapest combination by depth-first branch and bound; the first among equals.

        Invariant: `bound` is a lower bound on the cost of every completion of `chosen`. It is the
        sum of the chosen strategies' bounds and the least bound on each remaining mesh dim. Axes
        are sorted by bound, so the loop ends at the first strategy that cannot beat the best cost.
        """
        axes = self._bounds()
        best: tuple[float, Combination] = math.inf, ()

        def descend(chosen: Combination, bound: float) -> None:
            nonlocal best
            if len(chosen) == len(axes):
                best = min(best, (sum(self._costs(chosen)), chosen))
                return
            axis = axes[len(chosen)]
            for least, strategy in axis:
                higher = bound + (least - axis[0][0])
                if higher >= best[0]:
                    break
                if self.is_kept((*chosen, strategy)):
                    descend((*chosen, strategy), higher)

        descend((), sum(axis[0][0] for axis in axes if axis))
        return best[1]

    def _bounds(self) -> list[list[tuple[float, int]]]:
        """Return each mesh dim's possible strategies, sorted: (bound in microseconds, index)."""
        least = [operand.least_costs() for operand in self.operands]
        axes = []
        for mesh_dim in range(self.mesh.ndim):
            sums = map(sum, zip(*[costs[mesh_dim] for costs in least], strict=True))
            axes.append(sorted([(b * _ROUND_DOWN, s) for s, b in enumerate(sums) if b < math.inf]))
        return axes

    def op_spec(self, combination: Combination) -> OpSpec:
        """Return the `OpSpec` that torch builds for a combination."""
        columns = list(zip(*[self.strategies[s] for s in combination], strict=True))
        count, metas = len(self.metas), iter(self.metas)
        outputs = [
            None if column[0] is None else DTensorSpec(self.mesh, column, next(metas))
            for column in columns[:count]
        ]
        wanted = [column for column in columns[count:] if column[0] is not None]
        return OpSpec(
            output_specs=(outputs[0] if count == 1 else tuple(outputs)) or None,
            input_specs=[
                operand.spec
                if operand.stays(combination)
                else DTensorSpec(self.mesh, column, operand.spec.tensor_meta)
                for operand, column in zip(self.operands, wanted, strict=True)
            ],
            redistribute_cost=[[cost] for cost in self._costs(combination)],
        )


class TorchDiffers(Exception):
    """Torch's rules differ from those of this module, so torch's own search must decide."""


def cheapest_strategy(
    mesh: DeviceMesh,
    op_schema: OpSchema,
    single_mesh_dim_strategies: list[list[Placement | None]],
    **options: Any,
) -> OpStrategy:
    """Return a strategy with one or two OpSpecs, the only ones that torch can choose.

    It replaces torch's `expand_to_full_mesh_op_strategy`, with the same arguments, options and
    errors. For most ops torch takes the last combination that moves no input, for elements of a
    foreach op the first combination that costs nothing. If these differ, there are two OpSpecs.
    """
    with suppress(TorchDiffers):
        search = _search(mesh, op_schema, single_mesh_dim_strategies, **options)
        if winners := search.winners():
            return OpStrategy([search.op_spec(winner) for winner in winners])
    return _expand_exhaustively(mesh, op_schema, single_mesh_dim_strategies, **options)


def encode(placement: Placement | None) -> int:
    """Return a placement's code (None is REPLICATE); TorchDiffers for others, like strided."""
    if placement is None or type(placement) is Replicate:
        return REPLICATE
    if type(placement) is Shard and placement.dim >= 0:
        return int(placement.dim)
    if type(placement) is Partial and placement.reduce_op in _PARTIAL:
        return _PARTIAL[placement.reduce_op]
    raise TorchDiffers("This is not a plain placement.")


def encode_all(spec: DTensorSpec, mesh: DeviceMesh) -> Codes:
    """Return the codes of a spec's placements.

    Raises TorchDiffers for another mesh, strided shards, symbolic sizes or other shard orders.
    """
    codes = tuple([encode(placement) for placement in spec.placements])
    if (
        (spec.mesh is not mesh and spec.mesh != mesh)
        or spec.tensor_meta is None
        or any(type(size) is not int for size in spec.tensor_meta.shape)
        or not DTensorSpec.is_default_device_order(spec.shard_order)
        or max(codes) >= len(spec.tensor_meta.shape)
    ):
        raise TorchDiffers("This tensor is not laid out plainly.")
    return codes


def operand_of(spec: DTensorSpec, mesh: DeviceMesh, targets: Codes, may_stay: bool) -> Operand:
    """Return the operand for a tensor with this spec; raises TorchDiffers like `encode_all`."""
    source = encode_all(spec, mesh)
    topology, shards = prices.MeshTopoInfo.build_from_mesh(mesh), spec.num_shards
    gigabytes = prices.spec_to_bytes(spec) / shards / 1024 / 1024 / 1024
    mesh_dims = range(mesh.ndim)[:: -1 if shards > 1 else 1]
    return Operand(spec, topology, source, targets, gigabytes, mesh_dims, may_stay)


def _search(
    mesh: DeviceMesh,
    op_schema: OpSchema,
    strategies: Sequence[Sequence[Placement | None]],
    *,
    output_tensor_meta: TensorMeta | Sequence[TensorMeta | None] | None = None,
    input_index: int = 1,
    inplace_op: bool = False,
    allow_uneven_sharding: bool = False,
    **others: object,
) -> StrategySearch:
    columns = list(zip(*strategies, strict=False))
    codes = [tuple([encode(placement) for placement in column]) for column in columns]
    wanted = [codes[at] for at in range(input_index, len(columns)) if any(columns[at])]
    inputs = op_schema.args_strategy
    if (
        any(value is not None for name, value in others.items() if name not in _WITHOUT_EFFECT)
        or op_schema.kwargs_strategy
        or not 0 < len(inputs) == len(wanted)
        or any(len(given.strategies) != 1 for given in inputs)
        or any(len(row) != len(columns) for row in strategies)
        or not all(all(column) for column in columns[input_index:] if any(column))
        or not (all(columns[0]) or (input_index > 1 and not inplace_op))
        or any(any(column) and not all(column) for column in columns)
        or (op_schema.return_type_list_tensor_like() and type(output_tensor_meta) in (list, tuple))
        or _are_we_tracing()
        or _redistribute._FORCE_MIN_COST_REDISTRIBUTION_PLAN
        or not mesh._is_current_rank_part_of_mesh()
    ):
        raise TorchDiffers("torch chooses differently here.")
    operands = [
        operand_of(given.strategies[0].output_spec, mesh, targets, allow_uneven_sharding)
        for given, targets in zip(inputs, wanted, strict=True)
    ]
    filters: list[Callable[[Combination], bool]] = [
        held.is_shardable
        for held in operands
        if max(held.targets) >= held.spec.ndim or min(held.spec.shape, default=1) < mesh.size()
    ]
    filters += [partial(_is_one_kind, column) for column in codes if not are_of_one_kind(column)]
    if inplace_op:
        filters.append(lambda c: operands[0].stays(c) and _at(c, codes[0]) == _at(c, wanted[0]))
    single = isinstance(output_tensor_meta, TensorMeta)
    metas = [output_tensor_meta] * input_index if single else list(output_tensor_meta or ())
    metas = [*metas, *[None] * input_index][:input_index]
    return StrategySearch(mesh, strategies, metas, operands, lambda c: all(f(c) for f in filters))


def has_enough(shape: Sequence[int], target: Codes, devices: Sequence[int]) -> bool:
    """Whether each rank gets elements of a tensor, by its placements on the first mesh dims."""
    left = list(shape)
    for tensor_dim, count in zip(target, devices, strict=False):
        if tensor_dim > REPLICATE:
            if tensor_dim >= len(left) or left[tensor_dim] < count:
                return False
            left[tensor_dim] //= count
    return True


def are_of_one_kind(placements: Iterable[int]) -> bool:
    """Whether torch allows these Partials together: all of one kind, or only sum and avg."""
    kinds = {code for code in placements if code < REPLICATE}
    return len(kinds) <= 1 or kinds == {_PARTIAL["sum"], _PARTIAL["avg"]}


def _is_one_kind(column: Codes, combination: Combination) -> bool:
    return are_of_one_kind(_at(combination, column))


def _at(combination: Combination, column: Codes) -> Codes:
    return tuple([column[strategy] for strategy in combination])

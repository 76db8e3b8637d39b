"""Find the strategy that torch would choose for an op on DTensors, without trying them all.

On a cache miss torch combines the S strategies of one mesh dim to S^N for N mesh dims, builds specs
and adds up collectives for each, and takes the cheapest. Here placements are small integers, and
specs are built for the winner only. Where some strategy wants the inputs as they lie on each mesh
dim, such a combination wins at no cost. Otherwise combinations are built mesh dim by mesh dim,
cheapest strategies first, and branches with a lower bound above the best cost are cut off (branch
and bound).

The choice is torch's, to the last bit of the costs. Torch's planner needs at most one collective
for each mesh dim: to the placement wanted or, where outer mesh dims shard the same tensor dim
differently, to Replicate. `Operand.cost` adds the same collectives in the same order at torch's own
prices, so it is the same float. The bound takes the cheaper of the two, with no more bytes than any
plan has left by then. Of equal costs the lowest index wins.

Torch's own function handles everything else: strided shards, symbolic sizes, other shard orders or
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
from torch.distributed.tensor import Partial, Placement, Replicate, Shard, _redistribute
from torch.distributed.tensor import _collective_utils as prices
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

# Options that have no effect for sizes that are numbers and inputs on one mesh.
_WITHOUT_EFFECT = frozenset(("allow_unbacked_sharding", "different_mesh_args"))

# Bounds are summed in another order than costs, so they round differently.
_ROUND_DOWN = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor input of the op on a mesh of N dims, and the placements that S strategies want."""

    spec: DTensorSpec
    topology: prices.MeshTopoInfo  # the prices of collectives on each mesh dim
    source: Codes  # the placements of `spec`, shape (N,)
    targets: Codes  # the placement that each strategy wants on one mesh dim, shape (S,)
    gigabytes: float  # held by a rank
    mesh_dims: range  # in the order of torch's redistributions: outermost last if sharded
    may_stay: bool  # whether `source` may leave ranks without elements
    known: dict[Codes, float] = field(default_factory=dict)  # microseconds by target

    def is_shardable(self, combination: Combination) -> bool:
        """Whether all ranks get elements."""
        target = _at(combination, self.targets)
        return has_enough(self.spec.shape, target, self.topology.mesh_dim_devices) or (
            self.may_stay and self.stays(combination)
        )

    def stays(self, combination: Combination) -> bool:
        """Whether a combination wants it where it is."""
        return _at(combination, self.targets) == self.source[: len(combination)]

    def cost(self, target: Codes) -> float:
        """Return the microseconds of torch's `redistribute_cost` on a rank of the mesh.

        The cost from a Shard or another Partial to a Partial is infinite.
        """
        if target not in self.known:
            cost, gigabytes = 0.0, self.gigabytes
            for mesh_dim in self.mesh_dims:
                wanted = target[mesh_dim]
                if wanted > REPLICATE and self.mesh_dims.step < 0:
                    for own, new in zip(self.source[:mesh_dim], target, strict=False):
                        if own != new and wanted in (own, new):
                            wanted = REPLICATE
                            break
                if wanted != self.source[mesh_dim]:
                    step, gigabytes = self._step(mesh_dim, wanted, gigabytes)
                    cost += step
            self.known[target] = cost
        return self.known[target]

    def least_costs(self) -> dict[int, list[float]]:
        """Return lower bounds on the cost of each strategy in microseconds, by mesh dim."""
        least, gigabytes = {}, self.gigabytes
        targets = {*self.targets, REPLICATE}
        for mesh_dim in self.mesh_dims:
            costs = {code: self._step(mesh_dim, code, gigabytes)[0] for code in targets}
            whole = costs[REPLICATE]
            least[mesh_dim] = [min(costs[t], whole) if t >= 0 else costs[t] for t in self.targets]
            if self.source[mesh_dim] <= REPLICATE < max(targets):
                gigabytes /= self.topology.mesh_dim_devices[mesh_dim]
        return least

    def _step(self, mesh_dim: int, target: int, gigabytes: float) -> tuple[float, float]:
        """Return the microseconds along one mesh dim, and the gigabytes a rank holds after it."""
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
    """A search for the best of S strategies on each mesh dim."""

    mesh: DeviceMesh
    strategies: Sequence[Sequence[Placement | None]]  # on one mesh dim: outputs, then inputs
    metas: Sequence[TensorMeta | None]  # for each output; those with placements take the first ones
    operands: Sequence[Operand]
    is_kept: Callable[[Combination], bool]  # by torch; refusing a prefix refuses the whole

    def winners(self) -> list[Combination]:
        """Return the combinations that torch can choose; none where all are impossible."""
        last = self._first_free((), -1)
        first = self._first_free((REPLICATE,), 1) if last else self._first_cheapest()
        return sorted({combination for combination in (first, last) if combination})

    def _costs(self, combination: Combination) -> list[float]:
        return [operand.cost(_at(combination, operand.targets)) for operand in self.operands]

    def _first_free(self, movable: Codes, step: int) -> Combination:
        """Return the first combination, by `step`, that moves only `movable` and costs nothing."""
        axes = []
        for mesh_dim in range(self.mesh.ndim):
            fixed = [held for held in self.operands if held.source[mesh_dim] not in movable]
            own = [held.source[mesh_dim] for held in fixed]
            rows = zip(range(len(self.strategies)), *[held.targets for held in fixed], strict=True)
            axes.append([strategy for strategy, *row in rows if row == own][::step])
        kept = filter(self.is_kept, product(*axes))
        return next((found for found in kept if not any(self._costs(found))), ())

    def _first_cheapest(self) -> Combination:
        """Return the cheapest combination, of equal ones the first; depth-first branch and bound.

        Invariant: `bound` is a lower bound on the cost of every completion of `chosen`, namely the
        sum of the bounds of its strategies and of the least bound on each mesh dim left. Each axis
        is sorted, so the first strategy that cannot beat the best cost ends its branch.
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
        """Return the possible strategies of each mesh dim by increasing lower bound."""
        least = [operand.least_costs() for operand in self.operands]
        axes = []
        for mesh_dim in range(self.mesh.ndim):
            sums = map(sum, zip(*[costs[mesh_dim] for costs in least], strict=True))
            axes.append(sorted([(b * _ROUND_DOWN, s) for s, b in enumerate(sums) if b < math.inf]))
        return axes

    def op_spec(self, combination: Combination) -> OpSpec:
        """Return the spec that torch builds for a combination."""
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
    """Torch has other rules here, so its own search must decide."""


def cheapest_strategy(
    mesh: DeviceMesh,
    op_schema: OpSchema,
    single_mesh_dim_strategies: list[list[Placement | None]],
    **options: Any,
) -> OpStrategy:
    """Return the OpSpecs of `expand_to_full_mesh_op_strategy` that torch can choose.

    That is one, or two where torch's rules differ: an op takes the last combination that moves no
    input, the elements of a foreach op the first one that costs nothing. Arguments, options and
    errors are those of torch's function.
    """
    with suppress(TorchDiffers):
        search = _search(mesh, op_schema, single_mesh_dim_strategies, **options)
        if winners := search.winners():
            return OpStrategy([search.op_spec(winner) for winner in winners])
    return _expand_exhaustively(mesh, op_schema, single_mesh_dim_strategies, **options)


def encode(placement: Placement | None) -> int:
    """Return a placement's code; raises TorchDiffers if torch has other rules for it."""
    if placement is None or type(placement) is Replicate:
        return REPLICATE
    if type(placement) is Shard and placement.dim >= 0:
        return int(placement.dim)
    if type(placement) is Partial and placement.reduce_op in _PARTIAL:
        return _PARTIAL[placement.reduce_op]
    raise TorchDiffers("This is not a plain placement.")


def encode_all(spec: DTensorSpec, mesh: DeviceMesh) -> Codes:
    """Return the codes of a spec's placements; raises TorchDiffers if torch has other rules."""
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
    """Return a tensor as an operand; raises TorchDiffers if torch moves it by other rules."""
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
    """Whether all ranks get elements of a tensor with these placements, perhaps of a prefix."""
    left = list(shape)
    for tensor_dim, count in zip(target, devices, strict=False):
        if tensor_dim > REPLICATE:
            if tensor_dim >= len(left) or left[tensor_dim] < count:
                return False
            left[tensor_dim] //= count
    return True


def are_of_one_kind(placements: Iterable[int]) -> bool:
    """Whether no two kinds of Partial exclude each other."""
    kinds = {code for code in placements if code < REPLICATE}
    return len(kinds) <= 1 or kinds == {_PARTIAL["sum"], _PARTIAL["avg"]}


def _is_one_kind(column: Codes, combination: Combination) -> bool:
    return are_of_one_kind(_at(combination, column))


def _at(combination: Combination, column: Codes) -> Codes:
    return tuple([column[strategy] for strategy in combination])

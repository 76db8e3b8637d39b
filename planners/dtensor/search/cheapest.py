"""Find the strategy that torch would choose for an op on DTensors, without trying them all.

On a cache miss torch combines the S strategies of one mesh dim to S^N for N mesh dims, builds specs
and adds up collectives for each, and takes the cheapest. Here placements are small integers and
specs are built for the winner only. Where the inputs lie on each mesh dim as some strategy wants
them, such a combination wins at no cost. Otherwise combinations are built up mesh dim by mesh dim,
the cheapest strategies first, and left out where their lower bound cannot beat the best so far.

It is the same choice, to the last bit of the costs. torch's planner needs at most one collective
for each mesh dim: to the placement wanted or, where outer mesh dims shard the same tensor dim
differently, to Replicate. `Operand.cost` takes the same ones in the same order at torch's own
prices, so it is the same float. The bound takes the cheaper of the two, with no more bytes than any
plan has left by then. Of equal costs the lowest index wins.

What torch knows beyond that (strided shards, symbolic sizes, other shard orders or meshes, tensors
in keyword arguments, ...) is left to torch's own function.
"""

import math
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

from torch._ops import OpOverload
from torch.distributed._functional_collectives import _are_we_tracing
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard, _redistribute
from torch.distributed.tensor import _collective_utils as prices
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils

_expand_exhaustively = utils.expand_to_full_mesh_op_strategy

Codes = tuple[int, ...]
"""Placements as integers: the tensor dim of a Shard, REPLICATE, and less for each Partial."""
REPLICATE = -1
_PARTIAL = {"sum": -2, "avg": -3, "min": -4, "max": -5, "product": -6}

Combination = tuple[int, ...]
"""The index of a strategy for each mesh dim, from the outermost on; perhaps only the first few."""

# Options of torch's that change nothing for sizes that are numbers, and for inputs on one mesh.
_WITHOUT_EFFECT = frozenset(("allow_unbacked_sharding", "different_mesh_args"))

# Bounds are added up in another order than costs, and so are rounded differently.
_ROUND_DOWN = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that the op takes, on a mesh of N dims, and what S strategies want of it."""

    spec: DTensorSpec
    topology: prices.MeshTopoInfo  # what collectives cost on each mesh dim
    source: Codes  # the placements of `spec`, shape (N,)
    targets: Codes  # where each strategy wants it on one mesh dim, shape (S,)
    gigabytes: float  # what a rank holds of it
    mesh_dims: range  # in the order of torch's redistributions: outermost last if sharded
    may_stay: bool  # whether `source` is fine even if it leaves ranks without elements
    known: dict[Codes, float] = field(default_factory=dict)  # microseconds by target

    def is_shardable(self, combination: Combination) -> bool:
        """Whether all ranks get elements."""
        target = _at(combination, self.targets)
        return has_enough(self.spec.shape, target, self.topology.mesh_dim_devices) or (
            self.may_stay and self.stays(combination)
        )

    def stays(self, combination: Combination) -> bool:
        """Whether it is wanted where it lies."""
        return _at(combination, self.targets) == self.source[: len(combination)]

    def cost(self, target: Codes) -> float:
        """Return the microseconds of torch's `redistribute_cost` on a rank of the mesh.

        They are infinite from a Shard or another Partial to a Partial.
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
        """Return for each mesh dim what each strategy costs at least, in microseconds."""
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
        """Return the microseconds along one mesh dim, and the gigabytes that a rank holds then."""
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
        # An all-to-all, which torch prices so.
        return prices.allgather_cost(gigabytes, topology, mesh_dim) + 1.0, gigabytes


@dataclass(frozen=True, slots=True)
class StrategySearch:
    """A search for which of S strategies to take on each mesh dim."""

    mesh: DeviceMesh
    strategies: Sequence[Sequence[Placement | None]]  # on one mesh dim: of outputs, then of inputs
    metas: Sequence[TensorMeta | None]  # one for each output; those with placements take the first
    operands: Sequence[Operand]
    is_kept: Callable[[Combination], bool]  # by torch; no to its beginning is no to the whole

    def winners(self) -> list[Combination]:
        """Return what torch can choose, by index; nothing where all choices are impossible."""
        last = self._first_free((), -1)
        first = self._first_free((REPLICATE,), 1) if last else self._first_cheapest()
        return sorted({each for each in (first, last) if each})

    def _costs(self, combination: Combination) -> list[float]:
        return [each.cost(_at(combination, each.targets)) for each in self.operands]

    def _first_free(self, movable: Codes, step: int) -> Combination:
        """Return the first combination in the order of `step` that moves only `movable`, freely."""
        axes = []
        for mesh_dim in range(self.mesh.ndim):
            fixed = [each for each in self.operands if each.source[mesh_dim] not in movable]
            own = [each.source[mesh_dim] for each in fixed]
            rows = zip(range(len(self.strategies)), *[each.targets for each in fixed], strict=True)
            axes.append([strategy for strategy, *row in rows if row == own][::step])
        kept = filter(self.is_kept, product(*axes))
        return next((each for each in kept if not any(self._costs(each))), ())

    def _first_cheapest(self) -> Combination:
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
        """Return the possible strategies of each mesh dim, from the least lower bound up."""
        least = [each.least_costs() for each in self.operands]
        axes = []
        for mesh_dim in range(self.mesh.ndim):
            sums = map(sum, zip(*[costs[mesh_dim] for costs in least], strict=True))
            axes.append(sorted([(b * _ROUND_DOWN, s) for s, b in enumerate(sums) if b < math.inf]))
        return axes

    def op_spec(self, combination: Combination) -> OpSpec:
        """Return what torch builds for a combination."""
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
                each.spec
                if each.stays(combination)
                else DTensorSpec(self.mesh, column, each.spec.tensor_meta)
                for each, column in zip(self.operands, wanted, strict=True)
            ],
            redistribute_cost=[[cost] for cost in self._costs(combination)],
        )


class TorchDiffers(Exception):
    """Torch chooses by other rules here, so that its own search must answer."""


def cheapest_strategy(
    mesh: DeviceMesh,
    op_schema: OpSchema,
    single_mesh_dim_strategies: list[list[Placement | None]],
    **options: Any,
) -> OpStrategy:
    """Return only what torch can choose of what `expand_to_full_mesh_op_strategy` returns.

    That is one OpSpec, or two where torch's rules differ: an op takes the last combination for
    which no input has to be moved, the elements of a foreach op the first one that costs nothing.
    Arguments, options and errors are those of torch's function.
    """
    with suppress(TorchDiffers):
        search = _search(mesh, op_schema, single_mesh_dim_strategies, **options)
        if winners := search.winners():
            return OpStrategy([search.op_spec(each) for each in winners])
    return _expand_exhaustively(mesh, op_schema, single_mesh_dim_strategies, **options)


def searched_exactly(but_for: Container[OpOverload] = ()) -> AbstractContextManager[Any]:
    """Make torch use `cheapest_strategy`, but for the ops in `but_for`, which may change meanwhile.

    Modules that have imported torch's function by name keep using that one.
    """
    replaced = utils.expand_to_full_mesh_op_strategy

    def searched(mesh: DeviceMesh, schema: OpSchema, *rest: Any, **options: Any) -> OpStrategy:
        search = replaced if schema.op in but_for else cheapest_strategy
        return search(mesh, schema, *rest, **options)

    return mock.patch.object(utils, "expand_to_full_mesh_op_strategy", searched)


def encode(placement: Placement | None) -> int:
    """Return a placement's code; raises TorchDiffers if torch has other rules for it."""
    if placement is None or type(placement) is Replicate:
        return REPLICATE
    if type(placement) is Shard and placement.dim >= 0:
        return int(placement.dim)
    if type(placement) is Partial and placement.reduce_op in _PARTIAL:
        return _PARTIAL[placement.reduce_op]
    raise TorchDiffers("This is not a plain placement.")


def operand_of(spec: DTensorSpec, mesh: DeviceMesh, targets: Codes, may_stay: bool) -> Operand:
    """Return a tensor as an operand; raises TorchDiffers if torch moves it otherwise."""
    source = tuple([encode(placement) for placement in spec.placements])
    if (
        (spec.mesh is not mesh and spec.mesh != mesh)
        or spec.tensor_meta is None
        or any(type(size) is not int for size in spec.shape)
        or not DTensorSpec.is_default_device_order(spec.shard_order)
        or max(source) >= spec.ndim
    ):
        raise TorchDiffers("torch redistributes this tensor differently.")
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
        or any(len(each.strategies) != 1 for each in inputs)
        or any(len(each) != len(columns) for each in strategies)
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
        operand_of(each.strategies[0].output_spec, mesh, targets, allow_uneven_sharding)
        for each, targets in zip(inputs, wanted, strict=True)
    ]
    filters: list[Callable[[Combination], bool]] = [
        each.is_shardable
        for each in operands
        if max(each.targets) >= each.spec.ndim or min(each.spec.shape, default=1) < mesh.size()
    ]
    filters += [partial(_is_one_kind, column) for column in codes if not are_of_one_kind(column)]
    if inplace_op:
        filters.append(lambda c: operands[0].stays(c) and _at(c, codes[0]) == _at(c, wanted[0]))
    single = isinstance(output_tensor_meta, TensorMeta)
    metas = [output_tensor_meta] * input_index if single else list(output_tensor_meta or ())
    metas = [*metas, *[None] * input_index][:input_index]
    return StrategySearch(mesh, strategies, metas, operands, lambda c: all(f(c) for f in filters))


def has_enough(shape: Sequence[int], target: Codes, devices: Sequence[int]) -> bool:
    """Whether all ranks get elements of a tensor that is placed so, perhaps on the first dims."""
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

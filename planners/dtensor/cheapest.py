"""The strategy that torch would choose for an op on DTensors, found without trying them all.

On a cache miss torch combines the S strategies of one mesh dim to S^N for N mesh dims, builds specs
and adds up collectives for each, and takes the cheapest. Here placements are small integers, specs
are built for the winner only, and most combinations are never looked at:

1. Where the inputs lie on each mesh dim as some strategy wants them, such a combination wins at no
   cost.
2. Otherwise combinations are built up mesh dim by mesh dim, the cheapest strategies first. A lower
   bound says what each mesh dim costs at least; what cannot beat the best so far is left out.

It is the same choice, down to the last bit of the costs. torch's planner needs at most one
collective for each mesh dim: to the placement wanted or, where outer mesh dims shard the same
tensor dim differently, to Replicate; what it still does after that is free. `redistribute_cost`
takes the same collectives in the same order, at the prices of torch's own functions, so each cost
is the same float. The bound takes the cheaper one of the two collectives, with no more bytes than
any plan has left on that mesh dim. Of equal costs the lowest index wins, as in torch.

What torch knows beyond that (strided shards, symbolic sizes, other shard orders or meshes, ...) is
left to torch's own function.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from torch.distributed._functional_collectives import _are_we_tracing
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard, _redistribute
from torch.distributed.tensor._collective_utils import (
    MeshTopoInfo,
    allgather_cost,
    allreduce_cost,
    reduce_scatter_cost,
)
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils

_expand_exhaustively = utils.expand_to_full_mesh_op_strategy

Codes = tuple[int, ...]
"""Placements as integers: the tensor dim of a Shard, REPLICATE, and less for each Partial."""

Combination = tuple[int, ...]
"""The index of a strategy for each mesh dim."""

REPLICATE = -1
_REDUCE_OPS = ("sum", "avg", "min", "max", "product", "band", "bor", "bxor")
_PARTIAL = {reduce_op: REPLICATE - 1 - number for number, reduce_op in enumerate(_REDUCE_OPS)}
_SUM_AND_AVERAGE = {_PARTIAL["sum"], _PARTIAL["avg"]}

# Microseconds that torch puts on top of an all-gather for an all-to-all.
_ALL_TO_ALL_PENALTY = 1.0

# Bounds are added up in another order than costs, and so are rounded differently.
_BELOW_ROUNDING = 1 - 1e-9


class Unsupported(Exception):
    """Something that only torch's own function deals with."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that the op takes, on a mesh of N dims, and what S strategies want of it.

    Attributes:
        spec: the tensor and where it lies.
        topology: what collectives cost on each mesh dim.
        source: the placements of `spec`, shape (N,).
        targets: where each strategy wants it on one mesh dim, shape (S,).
        gigabytes: what a rank holds of it.
        is_sharded: whether that is less than all of it.
        is_roomy: whether no strategies can leave a rank without elements.
        may_stay: whether `source` is fine even if it leaves ranks without elements.
        known: costs by target, in microseconds, as far as they have been asked for.
    """

    spec: DTensorSpec
    topology: MeshTopoInfo
    source: Codes
    targets: Codes
    gigabytes: float
    is_sharded: bool
    is_roomy: bool
    may_stay: bool
    known: dict[Codes, float] = field(default_factory=dict)

    @property
    def mesh_dims(self) -> range:
        """The mesh dims in the order in which torch's planner redistributes along them."""
        count = len(self.source)
        return range(count - 1, -1, -1) if self.is_sharded else range(count)

    def cost(self, combination: Combination) -> float:
        """Return the microseconds until it lies as wanted; infinite where it cannot lie so."""
        target = tuple([self.targets[strategy] for strategy in combination])
        cost = self.known.get(target)
        if cost is None:
            cost = redistribute_cost(self, target) if self._is_shardable(target) else math.inf
            self.known[target] = cost
        return cost

    def fits(self, mesh_dim: int, strategy: int) -> bool:
        """Whether a strategy leaves elements for all ranks, as far as one mesh dim can say."""
        target = self.targets[strategy]
        return (
            target <= REPLICATE
            or (self.may_stay and target == self.source[mesh_dim])
            or (
                target < len(self.spec.shape)
                and self.spec.shape[target] >= self.topology.mesh_dim_devices[mesh_dim]
            )
        )

    def _is_shardable(self, target: Codes) -> bool:
        if self.is_roomy or (self.may_stay and target == self.source):
            return True
        left = list(self.spec.shape)
        for placement, devices in zip(target, self.topology.mesh_dim_devices, strict=True):
            if placement > REPLICATE:
                if placement >= len(left) or left[placement] < devices:
                    return False
                left[placement] //= devices
        return True


def encode(placement: Placement) -> int:
    """Return a placement's code; raises Unsupported for one that torch has other rules for."""
    kind = type(placement)
    if kind is Shard and placement.dim >= 0:
        return int(placement.dim)
    if kind is Replicate:
        return REPLICATE
    if kind is Partial and placement.reduce_op in _PARTIAL:
        return _PARTIAL[placement.reduce_op]
    raise Unsupported(f"{placement} is not a plain placement.")


def redistribute_cost(operand: Operand, target: Codes) -> float:
    """Return the microseconds that torch expects from `operand.source` to a target of shape (N,).

    The same float as `torch.distributed.tensor._collective_utils.redistribute_cost` returns, for
    ranks of the mesh; infinite from a Shard or another Partial to a Partial.
    """
    cost, gigabytes = 0.0, operand.gigabytes
    for mesh_dim in operand.mesh_dims:
        source, wanted = operand.source[mesh_dim], target[mesh_dim]
        if wanted > REPLICATE and operand.is_sharded:
            for outer in range(mesh_dim):
                if (operand.source[outer] == wanted) != (target[outer] == wanted):
                    wanted = REPLICATE
                    break
        if source != wanted:
            step, gigabytes = _step(operand.topology, mesh_dim, source, wanted, gigabytes)
            cost += step
    return cost


def _step(
    topology: MeshTopoInfo, mesh_dim: int, source: int, target: int, gigabytes: float
) -> tuple[float, float]:
    """Return the microseconds along one mesh dim, and the gigabytes that a rank holds then."""
    devices = topology.mesh_dim_devices[mesh_dim]
    if source == target:
        return 0.0, gigabytes
    if source == REPLICATE:
        return 0.0, gigabytes / devices if target > REPLICATE else gigabytes
    if target < REPLICATE:
        return math.inf, gigabytes
    if source < REPLICATE:
        if target == REPLICATE:
            return allreduce_cost(gigabytes, topology, mesh_dim), gigabytes
        return reduce_scatter_cost(gigabytes, topology, mesh_dim), gigabytes / devices
    if target == REPLICATE:
        gigabytes *= devices
        return allgather_cost(gigabytes, topology, mesh_dim), gigabytes
    return allgather_cost(gigabytes, topology, mesh_dim) + _ALL_TO_ALL_PENALTY, gigabytes


def _least_costs(operand: Operand) -> Iterator[tuple[int, dict[int, float]]]:
    """Yield mesh dims and what each target costs there at least, in microseconds, if anything."""
    targets = set(operand.targets)
    can_shard = max(targets) > REPLICATE
    topology, gigabytes = operand.topology, operand.gigabytes
    for mesh_dim in operand.mesh_dims:
        source = operand.source[mesh_dim]
        if source != REPLICATE:
            replicated, _ = _step(topology, mesh_dim, source, REPLICATE, gigabytes)
            costs = {REPLICATE: replicated}
            for target in targets:
                if target != REPLICATE:
                    cost, _ = _step(topology, mesh_dim, source, target, gigabytes)
                    costs[target] = min(cost, replicated) if target > REPLICATE else cost
            yield mesh_dim, costs
        if can_shard and source <= REPLICATE:
            gigabytes /= topology.mesh_dim_devices[mesh_dim]


@dataclass(frozen=True, slots=True)
class Question:
    """Which of S strategies to take on each of N mesh dims.

    Attributes:
        strategies: placements on one mesh dim, those of outputs first, then those of inputs.
        outputs: how many of them are outputs.
        operands: the inputs.
        arguments: how many of them count where torch asks whether any has to be moved.
        allowed: the strategies that are possible on each mesh dim as far as it can say alone.
        mixing: by strategy, the codes of those outputs and inputs of which different mesh dims may
            want kinds of Partial that exclude each other.
    """

    mesh: DeviceMesh
    strategies: Sequence[Sequence[Placement | None]]
    outputs: int
    operands: Sequence[Operand]
    arguments: int
    allowed: Sequence[Sequence[int]]
    mixing: Sequence[Codes]

    def winners(self) -> list[Combination]:
        """Return what torch can choose, by index.

        If there is a combination for which no input has to be moved, torch takes the last of them,
        but for the elements of a foreach op the first combination that costs nothing.
        """
        last = self._last_unmoved()
        first = self._first_cheapest() if last is None else self._first_free()
        return sorted({each for each in (first, last) if each is not None})

    def cost(self, combination: Combination) -> float:
        """Return the microseconds of all inputs; infinite where torch drops the combination."""
        for codes in self.mixing:
            if _mixes([codes[strategy] for strategy in combination]):
                return math.inf
        return sum([operand.cost(combination) for operand in self.operands])

    def _last_unmoved(self) -> Combination | None:
        arguments = self.operands[: self.arguments]
        unmoved = [
            [
                strategy
                for strategy in reversed(strategies)
                if all(each.targets[strategy] == each.source[mesh_dim] for each in arguments)
            ]
            for mesh_dim, strategies in enumerate(self.allowed)
        ]
        return self._free(unmoved)

    def _first_free(self) -> Combination | None:
        return self._free(
            [
                [
                    strategy
                    for strategy in strategies
                    if all(
                        each.source[mesh_dim] in (REPLICATE, each.targets[strategy])
                        for each in self.operands
                    )
                ]
                for mesh_dim, strategies in enumerate(self.allowed)
            ]
        )

    def _free(self, axes: Sequence[Sequence[int]]) -> Combination | None:
        return next((each for each in product(*axes) if self.cost(each) == 0), None)

    def _first_cheapest(self) -> Combination | None:
        axes = self._bounds()
        if not all(axes):
            return None
        rest = [sum(axis[0][0] for axis in axes[mesh_dim:]) for mesh_dim in range(len(axes) + 1)]
        best: tuple[float, Combination] = math.inf, ()

        def descend(chosen: Combination, bound: float) -> None:
            nonlocal best
            mesh_dim = len(chosen)
            if mesh_dim == len(axes):
                best = min(best, (self.cost(chosen), chosen))
                return
            for least, strategy in axes[mesh_dim]:
                if bound + least + rest[mesh_dim + 1] >= best[0]:
                    break
                descend((*chosen, strategy), bound + least)

        descend((), 0.0)
        return best[1] if best[0] < math.inf else None

    def _bounds(self) -> list[list[tuple[float, int]]]:
        """Return the allowed strategies of each mesh dim, from the least lower bound up."""
        bounds = [[0.0] * len(self.operands[0].targets) for _ in self.allowed]
        for operand in self.operands:
            for mesh_dim, costs in _least_costs(operand):
                row = bounds[mesh_dim]
                for strategy, target in enumerate(operand.targets):
                    row[strategy] += costs[target]
        return [
            sorted([(row[strategy] * _BELOW_ROUNDING, strategy) for strategy in strategies])
            for row, strategies in zip(bounds, self.allowed, strict=True)
        ]


def _mixes(codes: Iterable[int]) -> bool:
    kinds = {code for code in codes if code < REPLICATE}
    return len(kinds) > 1 and kinds != _SUM_AND_AVERAGE


def cheapest_strategy(
    mesh: DeviceMesh,
    op_schema: OpSchema,
    single_mesh_dim_strategies: list[list[Placement | None]],
    *,
    output_tensor_meta: TensorMeta | Sequence[TensorMeta | None] | None = None,
    input_index: int = 1,
    inplace_op: bool = False,
    allow_unbacked_sharding: bool | None = None,
    allow_uneven_sharding: bool = False,
    is_valid_strategy_cb: Callable[..., bool] | None = None,
    different_mesh_args: list[int] | None = None,
) -> OpStrategy:
    """Return only what torch can choose of what `expand_to_full_mesh_op_strategy` returns.

    That is one OpSpec, or two where torch's rules differ: an op takes the last combination for
    which no input has to be moved, the elements of a foreach op the first one that costs nothing.

    Arguments and errors are those of torch's function.
    """
    strategies = single_mesh_dim_strategies
    try:
        if is_valid_strategy_cb is not None:
            raise Unsupported("A callback has to see every combination.")
        question = _question(
            mesh, op_schema, strategies, input_index, inplace_op, allow_uneven_sharding
        )
        winners = question.winners()
    except Unsupported:
        winners = []
    if winners:
        return OpStrategy([_op_spec(question, each, output_tensor_meta) for each in winners])
    return _expand_exhaustively(
        mesh,
        op_schema,
        strategies,
        output_tensor_meta=output_tensor_meta,
        input_index=input_index,
        inplace_op=inplace_op,
        allow_unbacked_sharding=allow_unbacked_sharding,
        allow_uneven_sharding=allow_uneven_sharding,
        is_valid_strategy_cb=is_valid_strategy_cb,
        different_mesh_args=different_mesh_args,
    )


@contextmanager
def searched_exactly() -> Iterator[None]:
    """Make torch's propagation of single-dim strategies use `cheapest_strategy`.

    Modules that have imported torch's function by name keep using that one.
    """
    replaced = utils.expand_to_full_mesh_op_strategy
    utils.expand_to_full_mesh_op_strategy = cheapest_strategy
    try:
        yield
    finally:
        utils.expand_to_full_mesh_op_strategy = replaced


def _question(
    mesh: DeviceMesh,
    op_schema: OpSchema,
    strategies: list[list[Placement | None]],
    input_index: int,
    inplace_op: bool,
    allow_uneven_sharding: bool,
) -> Question:
    if (
        _are_we_tracing()
        or _redistribute._FORCE_MIN_COST_REDISTRIBUTION_PLAN
        or not mesh._is_current_rank_part_of_mesh()
    ):
        raise Unsupported("torch has other costs here.")
    columns = _columns(strategies)
    inputs = op_schema.args_strategy + op_schema.kwargs_strategy
    targets = [column for column in columns[input_index:] if column is not None]
    if not inputs or len(targets) != len(inputs) or (input_index == 1 and columns[0] is None):
        raise Unsupported("The strategies are not for these inputs and outputs.")
    operands = [
        _operand(mesh, _only_spec(each), column, allow_uneven_sharding)
        for each, column in zip(inputs, targets, strict=True)
    ]
    pinned = list(_pinned_by_out(op_schema, columns)) if op_schema.is_out_variant_op() else []
    if inplace_op:
        own = operands[0].source
        pinned += [(column, own) for column in (targets[0], columns[0]) if column is not None]
    tight = [operand for operand in operands if not operand.is_roomy]
    return Question(
        mesh=mesh,
        strategies=strategies,
        outputs=input_index,
        operands=operands,
        arguments=len(op_schema.args_strategy),
        allowed=[
            [
                strategy
                for strategy in range(len(strategies))
                if all(column[strategy] == own[mesh_dim] for column, own in pinned)
                and all(operand.fits(mesh_dim, strategy) for operand in tight)
            ]
            for mesh_dim in range(mesh.ndim)
        ],
        mixing=[column for column in columns if column is not None and _mixes(column)],
    )


def _columns(strategies: list[list[Placement | None]]) -> list[Codes | None]:
    """Return the codes of each output and input by strategy; None for one without placements."""
    columns: list[Codes | None] = []
    if len(set(map(len, strategies))) != 1:
        raise Unsupported("The strategies have different lengths.")
    for column in zip(*strategies, strict=True):
        placements = [placement for placement in column if placement is not None]
        if placements and len(placements) < len(column):
            raise Unsupported("Only some strategies have a placement here.")
        columns.append(tuple([encode(each) for each in placements]) or None)
    return columns


def _only_spec(strategy: OpStrategy) -> DTensorSpec:
    if len(strategy.strategies) != 1:
        raise Unsupported("The input can still have several placements.")
    return strategy.strategies[0].output_spec


def _operand(
    mesh: DeviceMesh, spec: DTensorSpec, targets: Codes, allow_uneven_sharding: bool
) -> Operand:
    meta = spec.tensor_meta
    if (
        (spec.mesh is not mesh and spec.mesh != mesh)
        or meta is None
        or any(type(size) is not int for size in meta.shape)
        or not DTensorSpec.is_default_device_order(spec.shard_order)
    ):
        raise Unsupported("torch plans this redistribution differently.")
    source = tuple([encode(placement) for placement in spec.placements])
    topology = MeshTopoInfo.build_from_mesh(mesh)
    devices = topology.mesh_dim_devices
    if len(source) != len(devices) or max(source) >= len(meta.shape):
        raise Unsupported("The placements are not for this mesh or tensor.")
    shards = math.prod(
        [count for count, placement in zip(devices, source, strict=True) if placement > REPLICATE]
    )
    return Operand(
        spec=spec,
        topology=topology,
        source=source,
        targets=targets,
        gigabytes=meta.dtype.itemsize * math.prod(meta.shape) / shards / 1024 / 1024 / 1024,
        is_sharded=shards > 1,
        is_roomy=(
            max(targets) < len(meta.shape) and min(meta.shape, default=0) >= math.prod(devices)
        ),
        may_stay=allow_uneven_sharding,
    )


def _pinned_by_out(
    op_schema: OpSchema, columns: Sequence[Codes | None]
) -> Iterator[tuple[Codes, Codes]]:
    """Yield the codes of each output that an `out` receives, and the placements of that `out`."""
    names = [argument.name for argument in op_schema.op._schema.arguments if argument.is_out]
    for output, name in enumerate(names):
        out = op_schema.kwargs_schema.get(name)
        if isinstance(out, OpStrategy):
            column = columns[output] if output < len(columns) else None
            if column is None:
                raise Unsupported("There is no output for this `out`.")
            placements = _only_spec(out).placements
            yield column, tuple([encode(placement) for placement in placements])


def _op_spec(
    question: Question,
    combination: Combination,
    output_tensor_meta: TensorMeta | Sequence[TensorMeta | None] | None,
) -> OpSpec:
    chosen = [question.strategies[strategy] for strategy in combination]
    columns = list(zip(*chosen, strict=True))
    metas = iter(_metas(output_tensor_meta, question.outputs))
    outputs = [
        None if column[0] is None else DTensorSpec(question.mesh, column, tensor_meta=next(metas))
        for column in columns[: question.outputs]
    ]
    wanted = [column for column in columns[question.outputs :] if column[0] is not None]
    return OpSpec(
        output_specs=(outputs[0] if len(outputs) == 1 else tuple(outputs)) if outputs else None,
        input_specs=[
            DTensorSpec(question.mesh, column, tensor_meta=operand.spec.tensor_meta)
            for operand, column in zip(question.operands, wanted, strict=True)
        ],
        redistribute_cost=[[operand.cost(combination)] for operand in question.operands],
    )


def _metas(
    given: TensorMeta | Sequence[TensorMeta | None] | None, count: int
) -> list[TensorMeta | None]:
    """Return the metas of the outputs that have placements, which torch numbers by themselves."""
    if isinstance(given, TensorMeta):
        return [given] * count
    return [*(given if isinstance(given, (tuple, list)) else ()), *[None] * count]

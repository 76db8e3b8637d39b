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
tensor dim differently, to Replicate; what it still does after that is free. `Operand.cost` takes
the same collectives in the same order, at the prices of torch's own functions, so each cost is the
same float. The bound takes the cheaper one of the two collectives, with no more bytes than any plan
has left on that mesh dim. Of equal costs the lowest index wins, as in torch.

What torch knows beyond that (strided shards, symbolic sizes, other shard orders or meshes, tensors
in keyword arguments, ...) is left to torch's own function.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from torch.distributed._functional_collectives import _are_we_tracing
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard, _redistribute
from torch.distributed.tensor import _collective_utils as collectives
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils

_expand_exhaustively = utils.expand_to_full_mesh_op_strategy

Codes = tuple[int, ...]
"""Placements as integers: the tensor dim of a Shard, REPLICATE, and less for each Partial."""

Combination = tuple[int, ...]
"""The index of a strategy for each mesh dim, from the outermost on."""

REPLICATE = -1
_PARTIAL = {"sum": -2, "avg": -3, "min": -4, "max": -5, "product": -6}

# Bounds are added up in another order than costs, and so are rounded differently.
_BELOW_ROUNDING = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that the op takes, on a mesh of N dims, and what S strategies want of it.

    Attributes:
        spec: the tensor and where it lies.
        topology: what collectives cost on each mesh dim.
        source: the placements of `spec`, shape (N,).
        targets: where each strategy wants it on one mesh dim, shape (S,).
        gigabytes: what a rank holds of it.
        mesh_dims: in the order in which torch's planner redistributes: outermost last if sharded.
        may_stay: whether `source` is fine even if it leaves ranks without elements.
        known: costs by target, in microseconds, as far as they have been asked for.
    """

    spec: DTensorSpec
    topology: collectives.MeshTopoInfo
    source: Codes
    targets: Codes
    gigabytes: float
    mesh_dims: range
    may_stay: bool
    known: dict[Codes, float] = field(default_factory=dict)

    def target(self, combination: Combination) -> Codes:
        """Return where a combination, or the beginning of one, wants it."""
        return tuple([self.targets[strategy] for strategy in combination])

    @property
    def is_always_shardable(self) -> bool:
        """Whether each shard has elements in any case."""
        shape = self.spec.shape
        return max(self.targets) < len(shape) and min(shape) >= self.spec.mesh.size()

    def is_shardable(self, combination: Combination) -> bool:
        """Whether the beginning of a combination leaves elements for all ranks."""
        target, left = self.target(combination), list(self.spec.shape)
        for placement, devices in zip(target, self.topology.mesh_dim_devices, strict=False):
            if placement > REPLICATE:
                if placement >= len(left) or left[placement] < devices:
                    return self.may_stay and target == self.source[: len(target)]
                left[placement] //= devices
        return True

    def cost(self, target: Codes) -> float:
        """Return the microseconds that torch expects a redistribution to take.

        That is what `torch.distributed.tensor._collective_utils.redistribute_cost` returns on a
        rank of the mesh: infinite from a Shard or another Partial to a Partial.
        """
        if target not in self.known:
            cost, gigabytes = 0.0, self.gigabytes
            for mesh_dim in self.mesh_dims:
                wanted = target[mesh_dim]
                if wanted > REPLICATE and self.mesh_dims.step < 0:
                    before = [placement == wanted for placement in self.source[:mesh_dim]]
                    if before != [placement == wanted for placement in target[:mesh_dim]]:
                        wanted = REPLICATE
                step, gigabytes = self._step(mesh_dim, wanted, gigabytes)
                cost += step
            self.known[target] = cost
        return self.known[target]

    def least_costs(self) -> dict[int, dict[int, float]]:
        """Return what each target costs at least on each mesh dim, in microseconds."""
        least, gigabytes = {}, self.gigabytes
        targets = {*self.targets, REPLICATE}
        for mesh_dim in self.mesh_dims:
            costs = {code: self._step(mesh_dim, code, gigabytes)[0] for code in targets}
            least[mesh_dim] = {
                code: min(cost, costs[min(code, REPLICATE)]) for code, cost in costs.items()
            }
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
                return collectives.allreduce_cost(gigabytes, topology, mesh_dim), gigabytes
            cost = collectives.reduce_scatter_cost(gigabytes, topology, mesh_dim)
            return cost, gigabytes / devices
        if target == REPLICATE:
            gigabytes *= devices
            return collectives.allgather_cost(gigabytes, topology, mesh_dim), gigabytes
        # An all-to-all, which torch prices so.
        return collectives.allgather_cost(gigabytes, topology, mesh_dim) + 1.0, gigabytes


@dataclass(frozen=True, slots=True)
class Question:
    """Which of S strategies to take on each of N mesh dims.

    Attributes:
        strategies: placements on one mesh dim, those of outputs first, then those of inputs.
        outputs: how many of them are outputs.
        metas: those of the outputs that have placements, as far as they are known.
        operands: the inputs.
        allowed: the strategies of each mesh dim that leave alone what must not be moved.
        filters: say whether torch keeps a combination; no to the beginning of one is no to all.
    """

    mesh: DeviceMesh
    strategies: Sequence[Sequence[Placement | None]]
    outputs: int
    metas: Sequence[TensorMeta | None]
    operands: Sequence[Operand]
    allowed: Sequence[Sequence[int]]
    filters: Sequence[Callable[[Combination], bool]]

    def winners(self) -> list[Combination]:
        """Return what torch can choose, by index; nothing where all choices are impossible.

        If there are combinations for which no input has to be moved, torch takes the last of them,
        but for the elements of a foreach op the first combination that costs nothing.
        """
        last = self._first_free([axis[::-1] for axis in self._unmoved()])
        first = self._first_free(self._unmoved(REPLICATE)) if last else self._first_cheapest()
        return sorted({each for each in (first, last) if each})

    def costs(self, combination: Combination) -> list[float]:
        """Return the microseconds of each input."""
        return [each.cost(each.target(combination)) for each in self.operands]

    def _is_kept(self, combination: Combination) -> bool:
        return all(keeps(combination) for keeps in self.filters)

    def _unmoved(self, *movable: int) -> list[list[int]]:
        """Return the strategies that move no input, unless it lies at one of the codes."""
        axes = []
        for mesh_dim, strategies in enumerate(self.allowed):
            own = [(each.targets, each.source[mesh_dim]) for each in self.operands]
            own = [(targets, source) for targets, source in own if source not in movable]
            axes.append([s for s in strategies if all(to[s] == source for to, source in own)])
        return axes

    def _first_free(self, axes: Sequence[Sequence[int]]) -> Combination:
        kept = filter(self._is_kept, product(*axes))
        return next((each for each in kept if not any(self.costs(each))), ())

    def _first_cheapest(self) -> Combination:
        axes = self._bounds()
        best: tuple[float, Combination] = math.inf, ()

        def descend(chosen: Combination, bound: float) -> None:
            nonlocal best
            if len(chosen) == len(axes):
                best = min(best, (sum(self.costs(chosen)), chosen))
                return
            axis = axes[len(chosen)]
            for least, strategy in axis:
                higher = bound + (least - axis[0][0])
                if higher >= best[0]:
                    break
                if self._is_kept((*chosen, strategy)):
                    descend((*chosen, strategy), higher)

        descend((), sum(axis[0][0] for axis in axes if axis))
        return best[1]

    def _bounds(self) -> list[list[tuple[float, int]]]:
        """Return the possible strategies of each mesh dim, from the least lower bound up."""
        least = [(each.targets, each.least_costs()) for each in self.operands]
        axes = []
        for mesh_dim, strategies in enumerate(self.allowed):
            costs = [(targets, by_target[mesh_dim]) for targets, by_target in least]
            bounds = [(sum([cost[to[s]] for to, cost in costs]), s) for s in strategies]
            axes.append(sorted([(b * _BELOW_ROUNDING, s) for b, s in bounds if b < math.inf]))
        return axes

    def op_spec(self, combination: Combination) -> OpSpec:
        """Return what torch builds for a combination."""
        columns = list(zip(*[self.strategies[s] for s in combination], strict=True))
        metas = iter(self.metas)
        outputs = [
            None if column[0] is None else DTensorSpec(self.mesh, column, next(metas, None))
            for column in columns[: self.outputs]
        ]
        wanted = [column for column in columns[self.outputs :] if column[0] is not None]
        return OpSpec(
            output_specs=(outputs[0] if len(outputs) == 1 else tuple(outputs)) or None,
            input_specs=[
                each.spec
                if each.target(combination) == each.source
                else DTensorSpec(self.mesh, column, each.spec.tensor_meta)
                for each, column in zip(self.operands, wanted, strict=True)
            ],
            redistribute_cost=[[cost] for cost in self.costs(combination)],
        )


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
    try:
        question = _question(mesh, op_schema, single_mesh_dim_strategies, **options)
        winners = question.winners()
    except NotImplementedError:
        winners = []
    if winners:
        return OpStrategy([question.op_spec(each) for each in winners])
    return _expand_exhaustively(mesh, op_schema, single_mesh_dim_strategies, **options)


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


def encode(placement: Placement) -> int:
    """Return a placement's code; raises NotImplementedError if torch has other rules for it."""
    kind = type(placement)
    if kind is Shard and placement.dim >= 0:
        return int(placement.dim)
    if kind is Replicate:
        return REPLICATE
    if kind is Partial and placement.reduce_op in _PARTIAL:
        return _PARTIAL[placement.reduce_op]
    raise NotImplementedError("This is not a plain placement.")


def operand_of(
    spec: DTensorSpec, mesh: DeviceMesh, targets: Codes = (), may_stay: bool = False
) -> Operand:
    """Return a tensor as an operand; raises NotImplementedError if torch moves it otherwise."""
    source = tuple([encode(placement) for placement in spec.placements])
    if (
        (spec.mesh is not mesh and spec.mesh != mesh)
        or spec.tensor_meta is None
        or any(type(size) is not int for size in spec.shape)
        or not DTensorSpec.is_default_device_order(spec.shard_order)
        or len(source) != mesh.ndim
        or max(source) >= spec.ndim
    ):
        raise NotImplementedError("torch redistributes this tensor differently.")
    topology, shards = collectives.MeshTopoInfo.build_from_mesh(mesh), spec.num_shards
    gigabytes = collectives.spec_to_bytes(spec) / shards / 1024 / 1024 / 1024
    mesh_dims = range(mesh.ndim)[:: -1 if shards > 1 else 1]
    return Operand(spec, topology, source, targets, gigabytes, mesh_dims, may_stay)


def _question(
    mesh: DeviceMesh,
    op_schema: OpSchema,
    strategies: Sequence[Sequence[Placement | None]],
    *,
    output_tensor_meta: TensorMeta | Sequence[TensorMeta | None] | None = None,
    input_index: int = 1,
    inplace_op: bool = False,
    allow_uneven_sharding: bool = False,
    is_valid_strategy_cb: Callable[..., bool] | None = None,
    **_: object,
) -> Question:
    columns = _columns(strategies)
    wanted = [column for column in columns[input_index:] if column]
    inputs = op_schema.args_strategy
    if (
        is_valid_strategy_cb
        or op_schema.kwargs_strategy
        or any(len(each.strategies) != 1 for each in inputs)
        or not inputs
        or len(inputs) != len(wanted)
        or (input_index == 1 and not columns[0])
        or _are_we_tracing()
        or _redistribute._FORCE_MIN_COST_REDISTRIBUTION_PLAN
        or not mesh._is_current_rank_part_of_mesh()
    ):
        raise NotImplementedError("torch chooses differently here.")
    operands = [
        operand_of(each.strategies[0].output_spec, mesh, targets, allow_uneven_sharding)
        for each, targets in zip(inputs, wanted, strict=True)
    ]
    every = range(len(strategies))
    own, result = operands[0], columns[0] or wanted[0]
    filters = [partial(_is_one_kind, column) for column in columns if column]
    single = isinstance(output_tensor_meta, TensorMeta)
    return Question(
        mesh=mesh,
        strategies=strategies,
        outputs=input_index,
        metas=[output_tensor_meta] * input_index if single else output_tensor_meta or (),
        operands=operands,
        allowed=[
            [s for s in every if not inplace_op or own.targets[s] == result[s] == placement]
            for placement in own.source
        ],
        filters=[keeps for keeps in filters if not keeps(every)]
        + [each.is_shardable for each in operands if not each.is_always_shardable],
    )


def _columns(strategies: Sequence[Sequence[Placement | None]]) -> list[Codes]:
    """Return the codes of each output and input, by strategy; none for one without placements."""
    columns = [[each for each in column if each] for column in zip(*strategies, strict=True)]
    if not columns or any(0 < len(column) < len(strategies) for column in columns):
        raise NotImplementedError("Strategies have placements for different outputs or inputs.")
    return [tuple([encode(placement) for placement in column]) for column in columns]


def _is_one_kind(column: Codes, combination: Sequence[int]) -> bool:
    """Whether a combination has no two kinds of Partial, by strategy, that exclude each other."""
    kinds = {column[s] for s in combination if column[s] < REPLICATE}
    return len(kinds) <= 1 or kinds == {_PARTIAL["sum"], _PARTIAL["avg"]}

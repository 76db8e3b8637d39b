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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils

from planners.dtensor.search.operands import (
    REPLICATE,
    Codes,
    Combination,
    Operand,
    TorchDiffers,
    are_of_one_kind,
    at,
    encode,
    operand_of,
)

_expand_exhaustively = utils.expand_to_full_mesh_op_strategy

# Options of torch's function that have no effect if all sizes are numbers and inputs share a mesh.
_WITHOUT_EFFECT = frozenset(("allow_unbacked_sharding", "different_mesh_args"))

# Bounds are summed in another order than costs. This factor keeps them below despite rounding.
_ROUND_DOWN = 1 - 1e-9


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
        return [operand.cost(at(combination, operand.targets)) for operand in self.operands]

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
        filters.append(lambda c: operands[0].stays(c) and at(c, codes[0]) == at(c, wanted[0]))
    single = isinstance(output_tensor_meta, TensorMeta)
    metas = [output_tensor_meta] * input_index if single else list(output_tensor_meta or ())
    metas = [*metas, *[None] * input_index][:input_index]
    return StrategySearch(mesh, strategies, metas, operands, lambda c: all(f(c) for f in filters))


def _is_one_kind(column: Codes, combination: Combination) -> bool:
    return are_of_one_kind(at(combination, column))

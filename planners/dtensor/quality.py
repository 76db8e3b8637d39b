"""How good a decision is: what its redistributions cost, by torch's own model of collectives."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from unittest import mock

from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy

from planners.dtensor.decision import Decision, Redistribution
from planners.dtensor.dispatch.torch_path import PROPAGATOR

# Two sums of the same costs in different orders may differ by this share.
_ROUNDING = 1e-9


def quality(decision: Decision) -> Mapping[str, float]:
    """Return the cost of the redistributions in microseconds, and the cheapest possible.

    The cheapest is that of torch's exhaustive search, for each op as it was called.
    """
    known: dict[OpSchema, float] = {}
    chosen = cheapest = 0.0
    worse = 0
    for each in decision.redistributions:
        cost = cost_of(each)
        if each.schema not in known:
            known[each.schema] = cheapest_cost(each.schema)
        chosen += cost
        cheapest += known[each.schema]
        worse += cost > known[each.schema] * (1 + _ROUNDING)
    return {"redistribute_us": chosen, "cheapest_us": cheapest, "worse_decisions": worse}


def cost_of(redistribution: Redistribution) -> float:
    """Return what moving the inputs of an op costs, in microseconds."""
    return sum((redistribute_cost(*move) for move in redistribution.moves), start=0.0)


def cheapest_cost(schema: OpSchema) -> float:
    """Return the least that an op costs in microseconds, over all of torch's strategies."""
    with _costs_seen() as costs:
        PROPAGATOR.propagate_op_sharding_non_cached(schema)
    return sum(costs)


@contextmanager
def _costs_seen() -> Iterator[list[float]]:
    select = _sharding_prop._select_min_cost_strategy
    costs: list[float] = []

    def seen(strategy: OpStrategy, *rest: object) -> OpSpec:
        if len(strategy.strategies) > 1:
            costs.append(
                min(
                    sum(chain.from_iterable(each.redistribute_cost)) for each in strategy.strategies
                )
            )
        return select(strategy, *rest)

    with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", seen):
        yield costs

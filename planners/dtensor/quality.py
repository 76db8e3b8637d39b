"""How good a decision is: what its redistributions cost, by torch's own model of collectives."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from unittest import mock

from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy

from planners.dtensor.capture.writer import described, moves_of
from planners.dtensor.decision import Decision, Redistribution
from planners.dtensor.dispatch.torch_path import PROPAGATOR
from planners.dtensor.programs.build import Recorded

# Two sums of the same costs in different orders may differ by this share.
_ROUNDING = 1e-9


def quality(decision: Decision) -> Mapping[str, float]:
    """Return the cost of the redistributions in microseconds, and the cheapest possible.

    The cheapest is that of torch's exhaustive search, for each op as it was called. A captured step
    is also compared with what was recorded.
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
    found = {"redistribute_us": chosen, "cheapest_us": cheapest, "worse_decisions": float(worse)}
    recorded = decision.program.recorded
    return found if recorded is None else found | {"unlike_recorded": unlike(decision, recorded)}


def unlike(decision: Decision, recorded: Recorded) -> int:
    """Return how many results lie elsewhere than was recorded, and inputs that moved otherwise.

    Inputs are told by op and by all that it moved; of those without their like here or there, the
    larger number counts.
    """
    results = sum(
        [was] != described(result)
        for was, result in zip(recorded.results, decision.outputs, strict=True)
    )
    moves = Counter(
        (str(each.schema.op), json.dumps(moves_of(each))) for each in decision.redistributions
    )
    return results + max((moves - recorded.moves).total(), (recorded.moves - moves).total())


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
        known = [
            sum(chain.from_iterable(each.redistribute_cost))
            for each in strategy.strategies
            if each.redistribute_cost is not None
        ]
        if known:
            costs.append(min(known))
        return select(strategy, *rest)

    with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", seen):
        yield costs

"""Rate a decision: the cost of its redistributions, by torch's own model of collectives."""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple
from unittest import mock

from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy

from planners.dtensor.capture.records import moves_of, result_records
from planners.dtensor.decision import Decision, Redistribution
from planners.dtensor.dispatch.torch_path import PROPAGATOR
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.build import RecordedDecisions
from planners.dtensor.programs.world import playing_one_rank

# Two sums of the same costs in different orders may differ by this share.
_ROUNDING = 1e-9


class MoveCost(NamedTuple):
    """An op whose inputs are moved: what that costs, and the least possible, in microseconds."""

    redistribution: Redistribution
    us: float
    cheapest_us: float

    @property
    def is_worse(self) -> bool:
        """Whether the op costs more than the cheapest of torch's strategies for it."""
        return self.us > self.cheapest_us * (1 + _ROUNDING)


def move_costs(decision: Decision) -> list[MoveCost]:
    """Return the costs of a call's ops in order, with the cheapest by exhaustive search."""
    known: dict[OpSchema, float] = {}
    for each in decision.redistributions:
        if each.schema not in known:
            known[each.schema] = cheapest_cost(each.schema)
    return [MoveCost(each, cost_of(each), known[each.schema]) for each in decision.redistributions]


def cost_of(redistribution: Redistribution) -> float:
    """Return what moving the inputs of an op costs, in microseconds."""
    return sum((redistribute_cost(*move) for move in redistribution.moves), start=0.0)


def quality(problem: DTensorProblem, decision: Decision) -> Mapping[str, float]:
    """Return what redistributions cost in microseconds, and compare with what was recorded."""
    with playing_one_rank(problem.ranks_per_host):
        costs = move_costs(decision)
    found = {
        "redistribute_us": sum((each.us for each in costs), start=0.0),
        "cheapest_us": sum((each.cheapest_us for each in costs), start=0.0),
        "worse_decisions": float(sum(each.is_worse for each in costs)),
    }
    recorded = decision.program.recorded
    return found if recorded is None else found | {"unlike_recorded": unlike(decision, recorded)}


def unlike(decision: Decision, recorded: RecordedDecisions) -> int:
    """Return how many results lie elsewhere than was recorded, and ops that moved otherwise.

    Of ops and moves without their like here or there, the larger number counts.
    """
    results = sum(
        [was] != result_records(result)
        for was, result in zip(recorded.results, decision.outputs, strict=True)
    )
    moves = Counter((str(each.schema.op), moves_of(each)) for each in decision.redistributions)
    return results + max((moves - recorded.moves).total(), (recorded.moves - moves).total())


def cheapest_cost(schema: OpSchema) -> float:
    """Return the least that an op costs in microseconds, over all of torch's strategies."""
    select = _sharding_prop._select_min_cost_strategy
    least = []

    def selected(strategy: OpStrategy, *rest: object) -> OpSpec:
        known = (each.redistribute_cost for each in strategy.strategies)
        sums = (sum(chain.from_iterable(cost)) for cost in known if cost is not None)
        least.append(min(sums, default=0.0))
        return select(strategy, *rest)

    with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", selected):
        PROPAGATOR.propagate_op_sharding_non_cached(schema)
    return sum(least)

"""Rate a decision, and explain it, by the cost of its moves in torch's own model of collectives."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from unittest import mock

import torch
from torch.distributed.tensor import DTensor, _sharding_prop
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy

from harness.contract import Explanation, Question, Section, UsageError
from planners.dtensor.decision import Decision, Redistribution
from planners.dtensor.dispatch.torch_path import PROPAGATOR
from planners.dtensor.optimizer.muon import ELEMENTS
from planners.dtensor.optimizer.muon_buckets import buckets_of
from planners.dtensor.optimizer.muon_owners import least_largest, newton_schulz_flops
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.world import playing_one_rank

# Sums of the same costs in different orders may differ by this factor, from rounding.
_ROUNDING = 1e-9


class MoveCost(NamedTuple):
    """The cost of moving an op's inputs, and the least possible cost, in microseconds."""

    op: str
    moves: tuple[tuple[str, str], ...]  # source and target placements of each moved input
    us: float
    cheapest_us: float

    @property
    def is_worse(self) -> bool:
        """Whether the op costs more than the cheapest of torch's strategies for it."""
        return self.us > self.cheapest_us * (1 + _ROUNDING)

    @property
    def moved(self) -> str:
        """The moves in words."""
        return "; ".join(f"{source} becomes {target}" for source, target in self.moves) + "."


def quality(problem: DTensorProblem, decision: Decision) -> Mapping[str, float]:
    """Return the family's qualities: costs in microseconds and a number of ops, or Muon's work."""
    program, figures = problem.program, {}
    if program.compares_moves or not program.is_muon:  # owners replace the moves of Muon's step
        with playing_one_rank(problem.ranks_per_host):
            costs = _move_costs(decision)
        figures = {
            "redistribute_us": sum((cost.us for cost in costs), start=0.0),
            "cheapest_us": sum((cost.cheapest_us for cost in costs), start=0.0),
            "worse_decisions": float(sum(cost.is_worse for cost in costs)),
        }
    if program.is_muon and program.optimizer is not None:
        weights = program.optimizer.param_groups[0]["params"]
        if weights := [weight for weight in weights if isinstance(weight, DTensor)]:
            figures |= _work(weights, has_owners=decision.has_owners)
    return figures


def _work(weights: Sequence[torch.Tensor], *, has_owners: bool) -> Mapping[str, float]:
    """Return the Newton-Schulz flops of the slowest rank, and their bound, over an even split's.

    Without owners, every rank orthogonalises all matrices.
    """
    specs = tuple(weight._spec for weight in weights)
    costs, ranks = [newton_schulz_flops(*spec.shape) for spec in specs], specs[0].mesh.size()
    slowest = sum(costs)
    if has_owners:
        slowest = sum(bucket.owners.largest for bucket in buckets_of(specs, 0, ranks, ELEMENTS))
    mean = sum(costs) / ranks
    return {"slowest_rank": slowest / mean, "slowest_bound": least_largest(costs, ranks) / mean}


def explain(
    problem: DTensorProblem, decision: Decision, question: Question[Decision]
) -> Explanation:
    """Report ops that move inputs, their cost and least cost; UsageError if a rank is given."""
    if question.rank is not None:
        raise UsageError("DTensor decides alike for all ranks; leave out --rank.")
    with playing_one_rank(problem.ranks_per_host):
        costs = _move_costs(decision)
        other = None
        if question.other_decision is not None:
            other = sum(map(_cost_of, question.other_decision.redistributions))
    counted = Counter(costs)
    ops = sorted(counted, key=lambda op: -counted[op] * op.us)
    total = sum(counted[op] * op.us for op in ops)
    cheapest = sum(counted[op] * op.cheapest_us for op in ops)
    lines = [
        f"{len(costs):,} of {problem.program.size:,} ops move inputs, for {total:.4g} us in all."
    ]
    if ops:
        worst, worse = ops[0], sum(cost.is_worse for cost in costs)
        lines += [
            f"Most of it is for {worst.op}: {counted[worst]} x {worst.us:.4g} us. {worst.moved}",
            f"{worse:,} of them cost more than the cheapest of torch's strategies for the op as "
            f"called, by {total - cheapest:.4g} us in all."
            if worse
            else "Each takes the cheapest of torch's strategies for the op as it was called.",
        ]
    if other is not None:
        lines.append(f"{question.other} moves inputs for {other:.4g} us.")
    rows: list[tuple[str | float | None, ...]] = [
        (op.op, op.moved, float(counted[op]), op.us, op.cheapest_us) for op in ops[: question.top]
    ]
    if rest := ops[question.top :]:
        rows.append((f"{len(rest)} more", "", float(sum(counted[op] for op in rest)), None, None))
    section = Section(
        "Ops that move inputs, each time in microseconds",
        ("op", "moved", "times", "us", "cheapest\nus"),
        tuple(rows),
    )
    return Explanation(
        tuple(lines),
        (section,) if ops else (),
        {
            "redistribute_us": total,
            "cheapest_us": cheapest,
            "other_us": other,
            "ops": [op._asdict() | {"times": counted[op]} for op in ops],
        },
    )


def _move_costs(decision: Decision) -> list[MoveCost]:
    """Return a cost for each op that moves inputs, in order; the least by exhaustive search."""
    schemas = dict.fromkeys(op.schema for op in decision.redistributions)  # each is searched once
    cheapest = {schema: _cheapest_cost(schema) for schema in schemas}
    return [
        MoveCost(
            str(op.schema.op),
            tuple(
                (" ".join(map(str, source.placements)), " ".join(map(str, target.placements)))
                for source, target in op.moves
            ),
            _cost_of(op),
            cheapest[op.schema],
        )
        for op in decision.redistributions
    ]


def _cost_of(redistribution: Redistribution) -> float:
    """Return the cost of moving an op's inputs in microseconds, in torch's model."""
    return sum((redistribute_cost(*move) for move in redistribution.moves), start=0.0)


def _cheapest_cost(schema: OpSchema) -> float:
    """Return the least cost of moving an op's inputs in microseconds, over all strategies."""
    select = _sharding_prop._select_min_cost_strategy
    least = []

    def selected(strategy: OpStrategy, *rest: object) -> OpSpec:
        known = (spec.redistribute_cost for spec in strategy.strategies)
        sums = (sum(chain.from_iterable(cost)) for cost in known if cost is not None)
        least.append(min(sums, default=0.0))
        return select(strategy, *rest)

    with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", selected):
        PROPAGATOR.propagate_op_sharding_non_cached(schema)
    return sum(least)

"""Explain the cost of a program on a mesh: the ops that move inputs, and the least cost of each.

Costs are by torch's own model of collectives; see `quality`.
"""

from collections import Counter
from typing import NamedTuple

from harness.contract import Explanation, Question, Section, UsageError
from planners.dtensor.capture.records import moves_of
from planners.dtensor.decision import Decision
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.world import playing_one_rank
from planners.dtensor.quality import cost_of, move_costs


class _MovedOp(NamedTuple):
    """All calls of an op that move the same inputs at the same cost."""

    op: str
    moves: tuple[tuple[str, str], ...]  # source and target placements of each moved input
    times: int  # in a call of the program
    us: float  # each time
    cheapest_us: float  # by the cheapest of torch's strategies for the op

    def described_moves(self) -> str:
        return "; ".join(f"{source} becomes {target}" for source, target in self.moves) + "."


def explain(
    problem: DTensorProblem, decision: Decision, question: Question[Decision]
) -> Explanation:
    """Name the ops of a call that move inputs, and their least cost; UsageError for a rank."""
    if question.rank is not None:
        raise UsageError("DTensor decides alike for all ranks; leave out --rank.")
    with playing_one_rank(problem.ranks_per_host):
        costs = move_costs(decision)
        other = None
        if question.other_decision is not None:
            other = sum(map(cost_of, question.other_decision.redistributions))
    counted = Counter(
        (
            str(cost.redistribution.schema.op),
            tuple((" ".join(a), " ".join(b)) for a, b in moves_of(cost.redistribution)),
            cost.us,
            cost.cheapest_us,
        )
        for cost in costs
    )
    ops = [_MovedOp(*key[:2], times, *key[2:]) for key, times in counted.items()]
    ops.sort(key=lambda op: -op.times * op.us)
    total = sum(op.times * op.us for op in ops)
    cheapest = sum(op.times * op.cheapest_us for op in ops)
    lines = [
        f"{len(costs):,} of {problem.program.size:,} ops move inputs, for {total:.4g} us in all."
    ]
    if ops:
        worst, worse = ops[0], sum(cost.is_worse for cost in costs)
        lines += [
            f"Most of it is for {worst.op}: {worst.times} x {worst.us:.4g} us. "
            + worst.described_moves(),
            f"{worse:,} of them cost more than the cheapest of torch's strategies for the op as "
            f"called, by {total - cheapest:.4g} us in all."
            if worse
            else "Each takes the cheapest of torch's strategies for the op as it was called.",
        ]
    if other is not None:
        lines.append(f"{question.other} moves inputs for {other:.4g} us.")
    rows: list[tuple[str | float | None, ...]] = [
        (op.op, op.described_moves(), float(op.times), op.us, op.cheapest_us)
        for op in ops[: question.top]
    ]
    if rest := ops[question.top :]:
        rows.append((f"{len(rest)} more", "", float(sum(op.times for op in rest)), None, None))
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
            "ops": [op._asdict() for op in ops],
        },
    )

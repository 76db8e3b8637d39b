"""Explain the cost of a program on a mesh: the ops that move inputs, and each op's least cost.

Costs follow torch's own model of collectives; see `quality`.
"""

from collections import Counter

from harness.contract import Explanation, Question, Section, UsageError
from planners.dtensor.decision import Decision
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.world import playing_one_rank
from planners.dtensor.quality import MoveCost, cost_of, move_costs


def explain(
    problem: DTensorProblem, decision: Decision, question: Question[Decision]
) -> Explanation:
    """Report ops that move inputs, their cost and least cost; UsageError if a rank is given."""
    if question.rank is not None:
        raise UsageError("DTensor decides alike for all ranks; leave out --rank.")
    with playing_one_rank(problem.ranks_per_host):
        costs = move_costs(decision)
        other = None
        if question.other_decision is not None:
            other = sum(map(cost_of, question.other_decision.redistributions))
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
            f"Most of it is for {worst.op}: {counted[worst]} x {worst.us:.4g} us. {_moves(worst)}",
            f"{worse:,} of them cost more than the cheapest of torch's strategies for the op as "
            f"called, by {total - cheapest:.4g} us in all."
            if worse
            else "Each takes the cheapest of torch's strategies for the op as it was called.",
        ]
    if other is not None:
        lines.append(f"{question.other} moves inputs for {other:.4g} us.")
    rows: list[tuple[str | float | None, ...]] = [
        (op.op, _moves(op), float(counted[op]), op.us, op.cheapest_us) for op in ops[: question.top]
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


def _moves(op: MoveCost) -> str:
    return "; ".join(f"{source} becomes {target}" for source, target in op.moves) + "."

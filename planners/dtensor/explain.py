"""Explain what a program on a mesh costs: the ops whose inputs are moved, and what was needed.

Costs are torch's own model of collectives; see `quality`.
"""

from collections import Counter
from dataclasses import asdict, dataclass

from harness.contract import Explanation, Question, Section, UsageError
from planners.dtensor.capture.records import moves_of
from planners.dtensor.decision import Decision
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.world import playing_one_rank
from planners.dtensor.quality import cost_of, move_costs


@dataclass(frozen=True, slots=True)
class MovedOp:
    """An op whose inputs are moved so, and what that costs each time."""

    op: str
    moves: tuple[tuple[str, str], ...]  # source and target placements of each input that is moved
    times: int  # in a call
    us: float
    cheapest_us: float  # by the cheapest of torch's strategies for the op

    @property
    def total_us(self) -> float:
        """The microseconds of a whole call."""
        return self.times * self.us

    @property
    def said(self) -> str:
        """How the inputs are moved, in words."""
        return "; ".join(f"{source} becomes {target}" for source, target in self.moves) + "."


def explain(
    problem: DTensorProblem, decision: Decision, question: Question[Decision]
) -> Explanation:
    """Say which ops of a call move inputs, and which need not; UsageError for a rank."""
    if question.rank is not None:
        raise UsageError("DTensor decides alike for all ranks; leave out --rank.")
    with playing_one_rank(problem.ranks_per_host):
        costs = move_costs(decision)
        other = None
        if question.other_decision is not None:
            other = sum(map(cost_of, question.other_decision.redistributions))
    counted = Counter(
        (
            str(each.redistribution.schema.op),
            tuple((" ".join(a), " ".join(b)) for a, b in moves_of(each.redistribution)),
            each.us,
            each.cheapest_us,
        )
        for each in costs
    )
    ops = [
        MovedOp(op, moves, times, us, cheapest)
        for (op, moves, us, cheapest), times in counted.items()
    ]
    total = sum(each.total_us for each in ops)
    cheapest = sum(each.times * each.cheapest_us for each in ops)
    ops.sort(key=lambda each: -each.total_us)
    lines = [
        f"Inputs are moved for {len(costs):,} of {problem.program.size:,} ops, {total:.4g} us in "
        "all."
    ]
    if ops:
        worse = sum(each.is_worse for each in costs)
        lines += [
            f"Most of it is for {ops[0].op}: {ops[0].times} x {ops[0].us:.4g} us. {ops[0].said}",
            "Dearer than the cheapest of torch's strategies for the op as it was called: "
            f"{worse:,} of them, by {total - cheapest:.4g} us in all."
            if worse
            else "Each takes the cheapest of torch's strategies for the op as it was called.",
        ]
    if other is not None:
        lines.append(f"{question.other} moves inputs for {other:.4g} us.")
    rows: list[tuple[str | float | None, ...]] = [
        (each.op, each.said, float(each.times), each.us, each.cheapest_us)
        for each in ops[: question.top]
    ]
    if rest := ops[question.top :]:
        rows.append((f"{len(rest)} more", "", float(sum(e.times for e in rest)), None, None))
    section = Section(
        "Ops whose inputs are moved, each time in microseconds",
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
            "ops": [asdict(each) for each in ops],
        },
    )

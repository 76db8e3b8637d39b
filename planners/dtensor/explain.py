"""Why a program on a mesh costs what it does: the ops whose inputs are moved, and what was needed.

Costs are torch's own model of collectives; see `quality`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from harness.contract import Explanation, Question, Section, UsageError
from planners.dtensor.decision import Decision, Redistribution
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.world import playing_one_rank
from planners.dtensor.quality import cheapest_cost, cost_of

# Two sums of the same costs in different orders may differ by this share.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class MovedOp:
    """An op whose inputs are moved so, `times` in a call.

    `moves` has source and target placements of each input that is moved. Each time that costs `us`
    microseconds, where the cheapest of torch's strategies for the op would cost `cheapest_us`.
    """

    op: str
    moves: tuple[tuple[str, str], ...]
    times: int
    us: float
    cheapest_us: float

    @property
    def excess_us(self) -> float:
        """What the call spends beyond the cheapest strategies here."""
        return self.times * (self.us - self.cheapest_us)


def explain(
    problem: DTensorProblem, decision: Decision, question: Question[Decision]
) -> Explanation:
    """Say which ops of a call move their inputs, and which of them need not so much.

    Raises:
        UsageError: a rank is asked for.
    """
    if question.rank is not None:
        raise UsageError("DTensor decides alike for all ranks; leave out --rank.")
    with playing_one_rank(problem.ranks_per_host):
        ops = _moved(decision.redistributions)
        other = None
        if question.other_decision is not None:
            other = sum(map(cost_of, question.other_decision.redistributions))
    total = sum(each.times * each.us for each in ops)
    cheapest = sum(each.times * each.cheapest_us for each in ops)
    worse = [each for each in ops if each.excess_us > each.times * each.us * _ROUNDING]
    moved = sum(each.times for each in ops)
    told = [
        f"Inputs are moved for {moved:,} of {problem.program.size:,} ops, {total:.4g} us in all."
    ]
    if ops:
        dearest = max(ops, key=lambda each: each.times * each.us)
        told.append(
            f"Most of it is for {dearest.op}: {dearest.times} x {dearest.us:.4g} us. "
            f"{_by_placement(dearest)}"
        )
        told.append(
            "Dearer than the cheapest of torch's strategies for the op as it was called: "
            f"{sum(each.times for each in worse):,} of them, by {total - cheapest:.4g} us in all."
            if worse
            else "Each takes the cheapest of torch's strategies for the op as it was called."
        )
    if other is not None:
        told.append(f"{question.other} moves inputs for {other:.4g} us.")
    ops.sort(key=lambda each: -each.times * each.us)
    return Explanation(
        tuple(told),
        (_section(ops, question.top),) if ops else (),
        {
            "redistribute_us": total,
            "cheapest_us": cheapest,
            "other_us": other,
            "ops": [asdict(each) for each in ops],
        },
    )


def _moved(redistributions: Iterable[Redistribution]) -> list[MovedOp]:
    counted: Counter[tuple[str, tuple[tuple[str, str], ...], float, float]] = Counter()
    known: dict[object, float] = {}
    for each in redistributions:
        if each.schema not in known:
            known[each.schema] = cheapest_cost(each.schema)
        moves = tuple(
            (_written(source.placements), _written(target.placements))
            for source, target in each.moves
        )
        counted[str(each.schema.op), moves, cost_of(each), known[each.schema]] += 1
    return [
        MovedOp(op, moves, times, us, cheapest)
        for (op, moves, us, cheapest), times in counted.items()
    ]


def _written(placements: Iterable[object]) -> str:
    return " ".join(map(str, placements))


def _by_placement(op: MovedOp) -> str:
    """Say how an op's inputs are moved."""
    return "; ".join(f"{source} becomes {target}" for source, target in op.moves) + "."


def _section(ops: list[MovedOp], top: int) -> Section:
    shown, rest = ops[:top], ops[top:]
    left = (f"{len(rest)} more", "", float(sum(each.times for each in rest)), None, None)
    return Section(
        "Ops whose inputs are moved, each time in microseconds",
        ("op", "moved", "times", "us", "cheapest\nus"),
        (
            *(
                (each.op, _by_placement(each), float(each.times), each.us, each.cheapest_us)
                for each in shown
            ),
            *((left,) if rest else ()),
        ),
    )

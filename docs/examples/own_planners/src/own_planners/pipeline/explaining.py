"""Why a cut is as it is: its slowest stage, and what the stage's ends could be instead."""

from collections.abc import Iterator

from harness.contract import Explanation, Question, Section, UsageError
from own_planners.pipeline.chain import TERA, Chain, Cut


def explain(chain: Chain, cut: Cut, question: Question[Cut]) -> Explanation:
    """Explain a valid cut.

    Raises:
        UsageError: there is no such rank.
    """
    costs = [chain.cost(first, end) for first, end in cut.stages]
    rank = costs.index(max(costs)) if question.rank is None else question.rank
    if not 0 <= rank < chain.stages:
        raise UsageError(f"There is no rank {rank}; ranks are from 0 to {chain.stages - 1}.")
    mean = chain.until[-1] / chain.stages
    slowest = max(costs)
    first, end = cut.stages[rank]
    binding = "the heaviest layer" if chain.heaviest > mean else "the mean of the stages"
    moves = list(_moves(chain, cut, rank))
    sentences = [
        f"Stage {costs.index(slowest)} is the slowest with {slowest / TERA:.4g} TFLOP.",
        f"What bounds the result is {binding}, {max(chain.heaviest, mean) / TERA:.4g} TFLOP.",
    ]
    if question.other_decision is not None:
        other = max(chain.cost(*stage) for stage in question.other_decision.stages)
        sentences.append(f"The slowest stage of {question.other} costs {other / TERA:.4g} TFLOP.")
    return Explanation(
        sentences=tuple(sentences),
        sections=(
            Section(
                f"Stage {rank}, layers {first} to {end - 1}, with one of its ends moved by a layer",
                ("move", "stage\nthen", "slowest\nthen"),
                (("none", costs[rank] / TERA, slowest / TERA), *moves),
            ),
        ),
        document={"rank": rank, "flop": costs, "bound": binding, "moves": moves},
    )


def _moves(chain: Chain, cut: Cut, rank: int) -> Iterator[tuple[str, float, float]]:
    """Yield each cut with one end of a stage moved: what the stage and the slowest one cost."""
    for moved, called in ((rank - 1, "first"), (rank, "last")):
        for step in (-1, 1):
            ends = list(cut.ends)
            if not 0 <= moved < chain.stages - 1:
                continue  # the chain itself begins or ends there
            ends[moved] += step
            stages = Cut(tuple(ends)).stages
            if all(first < end for first, end in stages):
                costs = [chain.cost(first, end) / TERA for first, end in stages]
                yield f"{called} end by {step:+}", costs[rank], max(costs)

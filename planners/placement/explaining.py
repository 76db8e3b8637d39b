"""Explain a plan: the peak that binds, what more memory would save, and the dearest conversions."""

from dataclasses import replace

import numpy as np

from harness.contract import Explanation, Question, Section
from planners.placement.problem import (
    PlacementProblem,
    Plan,
    chosen_pairs,
    cost_of,
    memory_of,
)
from planners.placement.search.certified import certified

_MORE_MEMORY = 1.1
_MIB = 2**20


def explain(problem: PlacementProblem, decision: Plan, question: Question[Plan]) -> Explanation:
    """Explain a valid plan; it is planned again with 10 % more memory, in the same time."""
    choice = decision.choice
    cost = cost_of(problem, choice)
    # 1. The peak, and the nodes with most bytes at it.
    times, used = memory_of(problem, choice)
    at = int(np.argmax(used)) if len(used) else 0
    time, peak = (int(times[at]), int(used[at])) if len(used) else (0, 0)
    usage = problem.usage[problem.first[:-1] + choice]
    is_live = (problem.start <= time) & (time < problem.end)
    live = np.flatnonzero(is_live)
    largest = live[np.argsort(-usage[live], kind="stable")][: question.top]
    # 2. More memory.
    larger = replace(problem, limit=int(problem.limit * _MORE_MEMORY), known={})
    saved = cost - cost_of(problem, certified(larger).choice)
    # 3. The dearest conversions.
    pairs = chosen_pairs(problem, choice)
    dearest = np.argsort(-pairs, kind="stable")[: question.top]
    sentences = [
        f"Memory peaks at time {time} with {peak / problem.limit:.1%} of the limit; "
        f"{len(live):,} of {problem.nodes:,} nodes are alive then.",
        f"With 10 % more memory, a plan costs {saved / cost:.2%} less."
        if saved > 0
        else "With 10 % more memory, no cheaper plan was found.",
        f"Conversions are {int(pairs.sum()) / cost:.1%} of the cost.",
    ]
    if question.other_decision is not None:
        other = cost_of(problem, question.other_decision.choice)
        sentences.append(f"{question.other} costs {other / cost - 1:+.2%}.")
    blocks = tuple((int(node), int(choice[node]), float(usage[node] / _MIB)) for node in largest)
    edges = tuple(
        (
            f"{problem.tail[edge]} to {problem.head[edge]}",
            f"{choice[problem.tail[edge]]} to {choice[problem.head[edge]]}",
            float(pairs[edge]),
            float(pairs[edge] / cost),
        )
        for edge in dearest.tolist()
    )
    return Explanation(
        sentences=tuple(sentences),
        sections=(
            Section("Nodes with most memory at the peak", ("node", "state", "MiB"), blocks),
            Section("Dearest conversions", ("nodes", "states", "cost", "of all cost"), edges),
        ),
        document={"time": time, "saved": saved, "nodes": blocks, "conversions": edges},
    )

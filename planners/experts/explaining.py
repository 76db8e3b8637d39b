"""Explain a placement: replicas of the hottest experts, one more GPU, and the next fetches."""

from dataclasses import replace

import numpy as np

from harness.contract import Explanation, Question, Section, UsageError
from planners.experts.balancing.certified import certified
from planners.experts.balancing.few_moves import few_moves
from planners.experts.problem import ExpertsProblem, Placement, imbalance

_NEXT = (0, 8, 16, 32)


def explain(
    problem: ExpertsProblem, decision: Placement, question: Question[Placement]
) -> Explanation:
    """Explain a valid placement in its worst layer; raises UsageError for an unknown rank."""
    if question.rank is not None and not 0 <= question.rank < problem.gpus:
        raise UsageError(
            f"There is no rank {question.rank}; ranks are from 0 to {problem.gpus - 1}."
        )
    rated = imbalance(decision, problem.loads, problem.gpus)
    layer = int(rated.argmax())
    gpu_loads = decision.gpu_loads(problem.loads, problem.gpus)[layer]
    gpu = int(gpu_loads.argmax()) if question.rank is None else question.rank
    mean = float(problem.loads[layer].sum()) / problem.gpus or 1.0
    sentences = [
        f"Layer {layer} is the worst balanced, with {rated[layer]:.4f} of the mean load on its "
        f"busiest GPU; over all layers it is {rated.mean():.4f}.",
        _one_more(problem, layer),
    ]
    if question.other_decision is not None:
        other = imbalance(question.other_decision, problem.loads, problem.gpus)
        sentences.append(f"{question.other} reaches {other.mean():.4f} over all layers.")
    rows = _hottest(problem, decision, layer, gpu, mean, question.top)
    buys = _buys(problem, layer)
    sections = [
        Section(
            f"Experts of GPU {gpu} in layer {layer}, in shares of a GPU's mean load",
            ("expert", "replicas", "load of\na replica", "with one\nless"),
            rows,
        )
    ]
    if buys:
        title = f"Layer {layer}: busiest GPU after fetches from the placement in force"
        sections.append(Section(title, ("fetches", "of the mean"), buys))
    return Explanation(
        sentences=tuple(sentences),
        sections=tuple(sections),
        document={"layer": layer, "rank": gpu, "experts": rows, "fetches": buys},
    )


def _hottest(
    problem: ExpertsProblem, decision: Placement, layer: int, gpu: int, mean: float, top: int
) -> tuple[tuple[float | None, ...], ...]:
    """Return the experts of a GPU with their replicas, and shares with one replica less."""
    counts = decision.counts(problem.experts)[layer]
    held = np.unique(decision.slots[layer].reshape(problem.gpus, -1)[gpu])
    loads = problem.loads[layer] / mean
    ordered = sorted(map(int, held), key=lambda expert: -loads[expert] / counts[expert])
    return tuple(
        (
            expert,
            int(counts[expert]),
            float(loads[expert] / counts[expert]),
            float(loads[expert] / (counts[expert] - 1)) if counts[expert] > 1 else None,
        )
        for expert in ordered[:top]
    )


def _one_more(problem: ExpertsProblem, layer: int) -> str:
    """Return what one more GPU, or one on each node with groups, would give in a layer."""
    loads = problem.loads[layer : layer + 1]
    now = replace(problem, loads=loads, following=loads, previous=None)
    more = replace(now, gpus=problem.gpus + problem.nodes)
    before, after = (
        float(certified(asked).gpu_loads(loads, asked.gpus).max()) for asked in (now, more)
    )
    change = (1 - after / before) * 100 if before else 0.0
    which = "One more GPU on each node" if problem.nodes > 1 else "One more GPU"
    return f"{which} would lower the largest load of that layer by {change:.1f} %."


def _buys(problem: ExpertsProblem, layer: int) -> tuple[tuple[float, float], ...]:
    """Return the imbalance of a layer after a few fetches; nothing without a placement in force."""
    if problem.previous is None:
        return ()
    only = replace(
        problem,
        loads=problem.loads[layer : layer + 1],
        previous=problem.previous[layer : layer + 1],
    )
    return tuple(
        (
            fetches,
            float(imbalance(few_moves(replace(only, budget=fetches)), only.loads, only.gpus)[0]),
        )
        for fetches in _NEXT
    )

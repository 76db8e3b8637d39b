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
    worst = int(rated.argmax())
    layer, placement = problem.layer(worst), Placement(decision.slots[worst : worst + 1])
    gpu_loads = placement.gpu_loads(layer.loads, layer.gpus)[0]
    gpu = int(gpu_loads.argmax()) if question.rank is None else question.rank
    which = "One more GPU on each node" if problem.nodes > 1 else "One more GPU"
    sentences = [
        f"Layer {worst} is the worst balanced, with {rated[worst]:.4f} of the mean load on its "
        f"busiest GPU; over all layers it is {rated.mean():.4f}.",
        f"{which} would lower the largest load of that layer by {_one_more(layer):.1f} %.",
    ]
    if question.other_decision is not None:
        other = imbalance(question.other_decision, problem.loads, problem.gpus)
        sentences.append(f"{question.other} reaches {other.mean():.4f} over all layers.")
    experts = _hottest(layer, placement, gpu)[: question.top]
    sections = [
        Section(
            f"Experts of GPU {gpu} in layer {worst}, in shares of a GPU's mean load",
            ("expert", "replicas", "load of\na replica", "with one\nless"),
            experts,
        )
    ]
    fetches: tuple[tuple[float, float], ...] = ()
    if layer.previous is not None:
        limited = (replace(layer, budget=budget) for budget in _NEXT)
        loads = [imbalance(few_moves(asked), layer.loads, layer.gpus) for asked in limited]
        fetches = tuple(zip(_NEXT, (float(load[0]) for load in loads), strict=True))
        title = f"Layer {worst}: busiest GPU after fetches from the placement in force"
        sections.append(Section(title, ("fetches", "of the mean"), fetches))
    return Explanation(
        sentences=tuple(sentences),
        sections=tuple(sections),
        document={"layer": worst, "rank": gpu, "experts": experts, "fetches": fetches},
    )


def _hottest(
    layer: ExpertsProblem, placement: Placement, gpu: int
) -> tuple[tuple[float | None, ...], ...]:
    """Return the experts of a GPU, their replicas, and shares of a replica now and with one less.

    Shares are of a GPU's mean load, the largest first.
    """
    counts = placement.counts(layer.experts)[0]
    experts = np.unique(placement.slots.reshape(layer.gpus, -1)[gpu])
    loads = layer.loads[0] / (layer.loads.sum() / layer.gpus or 1.0)
    return tuple(
        (
            int(expert),
            int(counts[expert]),
            float(loads[expert] / counts[expert]),
            float(loads[expert] / (counts[expert] - 1)) if counts[expert] > 1 else None,
        )
        for expert in sorted(experts, key=lambda expert: -loads[expert] / counts[expert])
    )


def _one_more(layer: ExpertsProblem) -> float:
    """Return by how many percent one more GPU, or one on each node, lowers the largest load."""
    now = replace(layer, previous=None)
    more = replace(now, gpus=layer.gpus + layer.nodes)
    before, after = (
        float(certified(asked).gpu_loads(layer.loads, asked.gpus).max()) for asked in (now, more)
    )
    return (1 - after / before) * 100 if before else 0.0

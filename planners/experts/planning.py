"""Placements for use: the document, the ranks' loads, few fetches, and explanations."""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct, to_builtins

from harness.contract import (
    Explanation,
    Moving,
    Planning,
    Question,
    RankTable,
    Section,
    UsageError,
    checked,
    read_json,
)
from planners.experts.balancing.certified import certified
from planners.experts.balancing.few_moves import few_moves
from planners.experts.implementation import placement_of, quality
from planners.experts.problem import ExpertsProblem, Placement, fetched, imbalance, over_mean

_GIB = 2**30
_PARTS = (0.0, *(2.0**-power for power in range(6, -1, -1)))
_MOST_FRONT = 600_000
"""Layers times slots times GPUs: DeepSeek-V3 on 32 GPUs is below."""
_EXPLAINED = (0, 8, 16, 32)
"""Numbers of fetches whose effect an explanation shows."""


class PlacementDocument(Struct, frozen=True, kw_only=True):
    """A placement as `shardbench plan` writes it.

    `physical_to_logical_map` is the expert of each slot, by layer, the form that engines load.
    """

    format: Literal["shardbench-placement"] = "shardbench-placement"
    version: int = 1
    gpus: int
    quality: dict[str, float]
    physical_to_logical_map: list[list[int]]


def document(problem: ExpertsProblem, decision: Placement) -> dict[str, Any]:
    """Return a placement as plain JSON types, in the form of `PlacementDocument`."""
    placement = PlacementDocument(
        gpus=problem.gpus,
        quality=dict(quality(problem, decision)),
        physical_to_logical_map=decision.slots.tolist(),
    )
    plain: dict[str, Any] = to_builtins(placement)
    return plain


def _ranks(problem: ExpertsProblem, decision: Placement) -> RankTable:
    gpu_loads = decision.gpu_loads(problem.loads, problem.gpus)
    relative = over_mean(gpu_loads, problem.loads, problem.gpus)
    new = fetched(problem, decision).sum(axis=0) * problem.expert_bytes / _GIB
    columns = (relative.mean(axis=0), relative.max(axis=0), new)
    return RankTable(
        columns=("load", "worst layer", "fetched GiB"),
        rows=tuple(tuple(map(float, row)) for row in zip(*columns, strict=True)),
        capacities=(None, None, None),
        bar="load",
    )


def _within(
    problem: ExpertsProblem, path: Path, gib: float, lost: Collection[int]
) -> ExpertsProblem:
    """Return the problem with the placement of a file in force, and a limit on fetched GiB."""
    written = checked(read_json(path), PlacementDocument, str(path))
    if lost or written.gpus != problem.gpus:
        raise UsageError(
            f"{path} is for {written.gpus} GPUs; the GPUs must be the same, and none may be lost."
        )
    placement = placement_of(problem, written.physical_to_logical_map, str(path))
    budget = None
    if gib < math.inf:
        if not problem.expert_bytes:
            raise UsageError("The bytes of an expert are unknown for a file; use its 'budget'.")
        budget = int(gib * _GIB / problem.expert_bytes / problem.layers)
    return replace(problem, previous=placement.slots, budget=budget)


def _moved(problem: ExpertsProblem, decision: Placement) -> float:
    """Return the GiB that all GPUs fetch."""
    return int(fetched(problem, decision).sum()) * problem.expert_bytes / _GIB


def _front(problem: ExpertsProblem) -> Iterator[tuple[ExpertsProblem, Placement]]:
    """Yield placements with increasing budgets, each better balanced than the previous one."""
    best = math.inf
    for part in _PARTS:
        limited = replace(problem, budget=int(part * problem.slots))
        placement = few_moves(limited)
        rated = float(imbalance(placement, problem.loads, problem.gpus).mean())
        if rated < best * (1 - 1e-9):
            best = rated
            yield limited, placement


def _near(problem: ExpertsProblem, decision: Placement) -> ExpertsProblem | None:
    """Return the next window's problem with a decision in force; its front takes seconds."""
    if problem.layers * problem.slots * problem.gpus > _MOST_FRONT:
        return None
    return replace(problem, loads=problem.following, previous=decision.slots, budget=None, known={})


PLANNING: Planning[ExpertsProblem, Placement] = Planning(
    variant="few-moves",
    document=document,
    ranks=_ranks,
    moving=Moving(_within, _moved, _front, _near),
    baseline=lambda problem: ("vLLM", "compiled"),
)


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
        limited = (replace(layer, budget=budget) for budget in _EXPLAINED)
        loads = [imbalance(few_moves(asked), layer.loads, layer.gpus) for asked in limited]
        fetches = tuple(zip(_EXPLAINED, (float(load[0]) for load in loads), strict=True))
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

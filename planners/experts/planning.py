"""Placements for use: the document, the ranks' loads, and placements that fetch few experts."""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins

from harness.contract import Moving, Planning, RankTable, UsageError, checked, read_json
from planners.experts.balancing.few_moves import few_moves
from planners.experts.implementation import placement_of, quality
from planners.experts.problem import ExpertsProblem, Placement, fetched, imbalance, over_mean

_GIB = 2**30
_PARTS = (0.0, *(2.0**-power for power in range(6, -1, -1)))
_MOST_FRONT = 600_000
"""Layers times slots times GPUs: DeepSeek-V3 on 32 GPUs is below."""


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

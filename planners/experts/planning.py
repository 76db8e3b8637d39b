"""Placements for use: the document, the ranks' loads, and placements that fetch few experts."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from harness.contract import (
    Moving,
    Planning,
    RankTable,
    UsageError,
    checked,
    read_json,
)
from planners.experts.balancing.few_moves import few_moves
from planners.experts.implementation import placement_of, quality
from planners.experts.problem import ExpertsProblem, Placement, fetched, imbalance

_GIB = 2**30
_PARTS = (0.0, *(2.0**-power for power in range(6, -1, -1)))
_FORMAT = "shardbench-placement"
_MOST_FRONT = 600_000
"""Layers times slots times GPUs: DeepSeek-V3 on 32 GPUs is below."""


class PlacementDocument(Struct, frozen=True, kw_only=True):
    """A placement as `shardbench plan` writes it.

    `physical_to_logical_map` is the expert of each slot, by layer, the form that engines load.
    """

    format: str = _FORMAT
    version: int = 1
    gpus: int
    quality: dict[str, float]
    physical_to_logical_map: list[list[int]]


def document(problem: ExpertsProblem, decision: Placement) -> dict[str, Any]:
    """Return a placement as plain JSON types, in the form of `PlacementDocument`."""
    found: dict[str, Any] = to_builtins(
        PlacementDocument(
            gpus=problem.gpus,
            quality=dict(quality(problem, decision)),
            physical_to_logical_map=decision.slots.tolist(),
        )
    )
    return found


def _ranks(problem: ExpertsProblem, decision: Placement) -> RankTable:
    loads = decision.gpu_loads(problem.loads, problem.gpus)
    mean = loads.mean(axis=1, keepdims=True)
    relative = np.where(mean > 0, loads / np.where(mean > 0, mean, 1), 1.0)
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
    held: Mapping[str, Any] = read_json(path)
    if held.get("format") != _FORMAT:
        raise UsageError(f"{path} is no placement that `shardbench plan` wrote.")
    read = checked(held, PlacementDocument, str(path))
    if lost or read.gpus != problem.gpus:
        raise UsageError(
            f"{path} is for {read.gpus} GPUs; the GPUs must be the same, and none may be lost."
        )
    made = placement_of(problem, read.physical_to_logical_map, str(path))
    return replace(problem, previous=made.slots, budget=_budget(problem, gib))


def _budget(problem: ExpertsProblem, gib: float) -> int | None:
    """Return the experts that each layer may fetch; None for no limit."""
    if gib == float("inf"):
        return None
    if not problem.expert_bytes:
        raise UsageError("The bytes of an expert are unknown for a file; use its 'budget'.")
    return int(gib * _GIB / problem.expert_bytes / problem.layers)


def _moved(problem: ExpertsProblem, decision: Placement) -> float:
    """Return the GiB that all GPUs fetch."""
    return int(fetched(problem, decision).sum()) * problem.expert_bytes / _GIB


def _front(problem: ExpertsProblem) -> Iterator[tuple[ExpertsProblem, Placement]]:
    """Yield placements with increasing budgets, each better balanced than the previous one."""
    best = float("inf")
    for part in _PARTS:
        limited = replace(problem, budget=int(part * problem.slots))
        found = few_moves(limited)
        rated = float(imbalance(found, problem.loads, problem.gpus).mean())
        if rated < best * (1 - 1e-9):
            best = rated
            yield limited, found


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

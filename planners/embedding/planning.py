"""Exports plans as documents, and searches for plans close to a current plan."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.contract import Moving, Planning, RankTable, UsageError
from planners.embedding.best_plan.replanning import Replanning
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally
from planners.embedding.capture.file import plain
from planners.embedding.decision import Plan
from planners.embedding.plan_files.document import PlanDocument
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.problem import EmbeddingProblem, MoveBudget
from planners.embedding.quality import arrays, quality, ruler
from planners.embedding.remedies.remedies import remedies
from planners.embedding.search.outcome import Deadline, Found, placed
from planners.embedding.search.space import load_of_plan

_GIB = 2**30

# A front of plans near a measured plan is searched only if tables times ranks are at most this
# number, and with this fraction of the usual work.
_MOST_FOR_A_FRONT = 256
_EFFORT = 0.2

# Move budgets of a front, as fractions of the bytes that the best plan moves. Small budgets are
# dense, since the first bytes moved improve a plan most.
_PARTS = (0.0, *(2.0**-power for power in range(7, -1, -1)))


def document(problem: EmbeddingProblem, plan: Plan) -> dict[str, Any]:
    """Return a valid plan as plain JSON types, in the form of `PlanDocument`.

    Raises UsageError if two modules have tables of the same name, since a document identifies
    tables by name.
    """
    for name, times in Counter(table.name for table in problem.tables).items():
        if times > 1:
            raise UsageError(f"Table {name} is in {times} modules; a plan knows tables by name.")
    options = {option.fqn: option for option in plan.options}
    in_order = [options[fqn] for fqn in problem.fqns]
    made = PlanDocument.of(problem.topology, quality(problem, plan), in_order, *problem.changes)
    builtins: dict[str, Any] = msgspec.to_builtins(made, enc_hook=plain)
    return builtins


def _ranks(problem: EmbeddingProblem, plan: Plan) -> RankTable:
    load = load_of_plan(problem.judged(plan.options), problem.topology.world_size)
    return RankTable(
        columns=("ms", "HBM GiB", "DDR GiB"),
        rows=tuple(
            (ms, on_gpu / _GIB, on_host / _GIB)
            for ms, (on_gpu, on_host, _) in zip(load.perf.tolist(), load.used.tolist(), strict=True)
        ),
        capacities=(None, _common_gib(problem.usable_hbm), _common_gib(problem.usable_ddr)),
        bar="ms",
    )


def _common_gib(usable: Sequence[int]) -> float | None:
    """Return the usable GiB of every rank, or None if ranks differ."""
    return usable[0] / _GIB if len(set(usable)) == 1 else None


def _within(
    problem: EmbeddingProblem, path: Path, gib: float, lost: Collection[int]
) -> EmbeddingProblem:
    """Return the problem with a move budget of `gib` GiB from the plan in a file."""
    previous = PlanTable.of(path)
    previous.check_matches(problem.fqns, str(path))
    return replace(problem, moving=MoveBudget(previous.without(lost), gib), known={})


def _near(problem: EmbeddingProblem, plan: Plan) -> EmbeddingProblem | None:
    """Return the problem with `plan` as the current plan, or None if a search would take long."""
    ranks = problem.topology.world_size
    if problem.moving is not None or len(problem.tables) * ranks > _MOST_FOR_A_FRONT:
        return None
    space, devices = arrays(problem)
    names = {table.name for table in problem.tables}
    if len(names) < len(problem.tables) or not can_be_placed_locally(space, devices):
        return None
    moving = MoveBudget(PlanTable.of_options(plan.options, ranks), float("inf"), _EFFORT)
    return replace(problem, moving=moving, known=dict(problem.known))


def _moved(problem: EmbeddingProblem, plan: Plan) -> float:
    assert problem.moving is not None
    ranks = problem.topology.world_size
    return problem.moving.previous.bytes_moved(plan.options, ranks) / _GIB


def _front(problem: EmbeddingProblem) -> Iterator[tuple[EmbeddingProblem, Plan]]:
    """Yield problems with increasing move budgets and their plans, each better than the last."""
    assert problem.moving is not None
    previous = problem.moving.previous
    space, devices = arrays(problem)
    if not can_be_placed_locally(space, devices):
        raise UsageError("Moves are not counted for tables that depend on each other.")
    search = Replanning(
        space,
        devices,
        previous.moves,
        Deadline(problem.search_seconds),
        effort=problem.moving.effort,
    )
    least, best = 0, float("inf")
    for part in _PARTS:
        budget = least + int(part * max(search.everything - least, 0))
        near = search.search(budget)
        if not isinstance(near, Found):
            return
        least = max(least, near.moved) if part == 0.0 else least
        if near.rating < best:
            best = near.rating
            yield (
                replace(
                    problem,
                    moving=MoveBudget(previous, max(budget, near.moved) / _GIB),
                    known={**problem.known, "move_bound_ms": near.bound},
                ),
                Plan(tuple(placed(space, near))),
            )


def _baseline(problem: EmbeddingProblem) -> tuple[str, str]:
    """Return the captured planner if it can plan again, else TorchRec with its own proposers."""
    if problem.live is None or problem.live.planner.obstacle:
        return "TorchRec", "default-compiled"
    return "The captured planner", "captured-compiled"


PLANNING: Planning[EmbeddingProblem, Plan] = Planning(
    variant="certified",
    document=document,
    ranks=_ranks,
    limited=lambda problem, seconds: replace(problem, search_seconds=seconds),
    moving=Moving(_within, _moved, _front, _near),
    remedies=remedies,
    baseline=_baseline,
    ruler=ruler,
)

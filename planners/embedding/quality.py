"""Rates plans by torchrec's estimates, and computes proven lower bounds for all plans."""

import math
from collections.abc import Mapping, Sequence

from torchrec.distributed.planner.perf_models import NoopPerfModel

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import near_bound, with_previous
from planners.embedding.best_plan.proofs import ladder
from planners.embedding.decision import Plan
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.space import (
    Devices,
    SearchSpace,
    devices_of,
    load_of_plan,
    search_space,
)

# With more tables times ranks, a bound takes long, and a planner that proves one has run the same
# provers.
_MOST_PROVEN_AGAIN = 1_000_000


def quality(problem: EmbeddingProblem, plan: Plan) -> dict[str, float]:
    """Rate a plan by torchrec's own estimates: milliseconds per iteration, fractions of memory."""
    ranks = problem.topology.world_size
    max_rank_ms = float(NoopPerfModel(problem.topology).rate(list(plan.options)))
    load = load_of_plan(plan.options, ranks)
    mean_rank_ms = sum(load.perf.tolist()) / ranks
    bound_ms = plan.bound_ms or _bound_of_moves(problem, plan)
    is_small = len(problem.tables) * ranks <= _MOST_PROVEN_AGAIN
    if is_small or not plan.bound_ms or "bound_ms" in problem.known:
        bound_ms = max(bound_ms, bound(problem))
    hbm, ddr, _ = load.used.T.tolist()
    return {
        "max_rank_ms": max_rank_ms,
        "bound_ms": bound_ms,
        "gap": max_rank_ms / bound_ms - 1 if bound_ms else 0.0,
        "mean_rank_ms": mean_rank_ms,
        "imbalance": max_rank_ms / mean_rank_ms if mean_rank_ms else 1.0,
        "hbm_peak_fraction": _fullest(hbm, problem.usable_hbm),
        "ddr_peak_fraction": _fullest(ddr, problem.usable_ddr),
    }


def _fullest(used: Sequence[int], usable: Sequence[int]) -> float:
    return max(
        (part / whole for part, whole in zip(used, usable, strict=True) if whole > 0), default=0.0
    )


def bound(problem: EmbeddingProblem) -> float:
    """Return a proven lower bound in ms for all plans (cached); infinite if no plan exists."""
    if "bound_ms" not in problem.known:
        problem.known["bound_ms"] = ladder(candidates(*arrays(problem)))[-1].milliseconds
    return problem.known["bound_ms"]


def _bound_of_moves(problem: EmbeddingProblem, plan: Plan) -> float:
    """Return a lower bound in ms for all plans within the move budget; 0 without a budget."""
    if problem.moving is None or not math.isfinite(problem.moving.gib):
        return 0.0
    if "move_bound_ms" in problem.known:
        return problem.known["move_bound_ms"]
    previous, ranks = problem.moving.previous, problem.topology.world_size
    budget = max(problem.moving.gib * 2**30, previous.bytes_moved(plan.options, ranks))
    space, devices = arrays(problem)
    moves = previous.moves(space.options, ranks)
    return near_bound(with_previous(space, devices, moves), moves, budget, bound(problem))


def figures(problem: EmbeddingProblem, known: Mapping[str, float]) -> Mapping[str, float]:
    """Add `known` to the problem's figures, compute a missing bound, and return all figures."""
    problem.known.update(known)
    bound(problem)
    return problem.known


def arrays(problem: EmbeddingProblem) -> tuple[SearchSpace, Devices]:
    """Return the problem's options and the capacities of its devices as arrays."""
    enumerator = problem.enumerator(DistinctShardEnumerator)
    space = search_space(enumerator.enumerate(problem.module, problem.sharders))
    return space, devices_of(problem.reserved())

"""Rates plans by estimates, and computes proven lower bounds for all plans."""

import math
from collections.abc import Mapping, Sequence

from torchrec.distributed.planner.perf_models import NoopPerfModel

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import near_bound, with_previous
from planners.embedding.best_plan.proofs import ladder
from planners.embedding.decision import Plan
from planners.embedding.estimates.machines import TO_CALIBRATE
from planners.embedding.problem import EmbeddingProblem
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
    """Rate a plan: milliseconds per iteration, fractions of memory.

    Estimates are those of the problem's machine, or torchrec's own.
    """
    ranks, rating = problem.topology.world_size, NoopPerfModel(problem.topology).rate
    options = problem.judged(plan.options)
    max_rank_ms = float(rating(list(options)))
    load = load_of_plan(options, ranks)
    mean_rank_ms = sum(load.perf.tolist()) / ranks
    bound_ms = plan.bound_ms or _bound_of_moves(problem, plan)
    hbm, ddr, _ = load.used.T.tolist()
    fullest = _fullest(hbm, problem.usable_hbm), _fullest(ddr, problem.usable_ddr)
    is_small = len(problem.tables) * ranks <= _MOST_PROVEN_AGAIN
    if is_small or not plan.bound_ms or "bound_ms" in problem.known:
        bound_ms = max(bound_ms, bound(problem))
    by_torchrec: dict[str, float] = {}
    if problem.machine is not None:
        theirs = problem.by_torchrec(plan.options)
        by_torchrec = {
            "torchrec_ms": float(rating(list(theirs))),
            "torchrec_hbm_fraction": _fullest(
                load_of_plan(theirs, ranks).used[:, 0].tolist(), problem.usable_hbm
            ),
        }
        if max(fullest) > 1:  # it fits by torchrec's estimate alone, and the bound is for others
            bound_ms = 0.0
    return {
        "max_rank_ms": max_rank_ms,
        "bound_ms": bound_ms,
        "gap": max_rank_ms / bound_ms - 1 if bound_ms else 0.0,
        "mean_rank_ms": mean_rank_ms,
        "imbalance": max_rank_ms / mean_rank_ms if mean_rank_ms else 1.0,
        "hbm_peak_fraction": fullest[0],
        "ddr_peak_fraction": fullest[1],
        **by_torchrec,
    }


def ruler(problem: EmbeddingProblem, figures: Mapping[str, float]) -> str:
    """Say in a sentence by which estimates a plan with these figures is judged."""
    if problem.machine is None:
        return (
            "Milliseconds are by TorchRec's formula, which can be several times off; "
            f"{TO_CALIBRATE}, and --machine takes the file."
        )
    ours, theirs = figures["hbm_peak_fraction"], figures["torchrec_hbm_fraction"]
    return (
        f"Judged by machine {problem.machine.name} ({problem.machine.device}); by TorchRec's "
        f"formula it is {figures['torchrec_ms']:.4g} ms. The fullest rank uses {ours:.1%} of its "
        f"HBM, and {theirs:.1%} by TorchRec's sum."
    ).replace("%", " %")


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
    enumerator = problem.judging_enumerator()
    space = search_space(enumerator.enumerate(problem.module, problem.sharders))
    return space, devices_of(problem.reserved())

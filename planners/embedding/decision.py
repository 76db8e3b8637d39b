"""Makes, fingerprints and validates sharding plans."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError, ShardingOption

from harness.contract import InfeasibleDecision, Prepared
from planners.embedding.plan_files.checks import check_plan
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.tables.torchrec_objects import plan_fingerprint, weights_digest


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan: one sharding option for each table, with a rank for each shard."""

    options: tuple[ShardingOption, ...]
    bound_ms: float = 0.0  # lower bound for all plans that the planner proved; 0 if none


def prepare(
    problem: EmbeddingProblem,
    planner: Callable[..., EmbeddingShardingPlanner] = EmbeddingShardingPlanner,
    **components: Callable[[], object],
) -> Prepared[Plan]:
    """Prepare a variant that creates a new planner for each plan.

    `components` are factories, since planner components keep state. The planner prints no
    statistics, since printing is not part of planning. The prepared call raises InfeasibleDecision
    if it finds no plan.
    """
    if problem.options is not None and "enumerator" not in components:
        is_torchrecs = planner is EmbeddingShardingPlanner
        kind = EmbeddingEnumerator if is_torchrecs else DistinctShardEnumerator
        components["enumerator"] = lambda: problem.enumerator(kind)

    def plan() -> Plan:
        made = planner(
            topology=problem.topology,
            batch_size=problem.batch_size,
            constraints=problem.constraints,
            storage_reservation=problem.storage_reservation(),
            stats=[],
            debug=False,
            **{name: component() for name, component in components.items()},
        )
        # TorchRec logs, for each data-parallel table, that it has no sharding spec.
        logging.root.addFilter(_is_no_missing_spec)
        try:
            made.plan(problem.module, problem.sharders)
        except PlannerError as error:
            reason = str(error).strip().partition("\n")[0].strip(" .")
            counts = f"{made._num_plans} of {made._num_proposals} proposals could be placed"
            verdict = getattr(made, "verdict", "")  # of our own planner
            reasons = "; ".join(filter(None, (counts, verdict)))
            raise InfeasibleDecision(f"{reason} ({reasons})") from error
        finally:
            logging.root.removeFilter(_is_no_missing_spec)
        return Plan(tuple(made._best_plan or ()), getattr(made, "bound_ms", 0.0))

    return Prepared(run=plan)


def _is_no_missing_spec(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Sharding spec not found for")


@contextmanager
def torchrec_quiet() -> Iterator[None]:
    """Silence torchrec's warnings, which would be repeated for every plan."""
    logger = logging.getLogger("torchrec")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def fingerprint(plan: Plan) -> str:
    """Return a hash of each table's sharding type, kernel and shards (size, offset, rank)."""
    return plan_fingerprint(plan.options)


def validate(problem: EmbeddingProblem, plan: Plan) -> None:
    """Raise InfeasibleDecision unless the plan is valid.

    A plan must place each table once and completely, with an allowed kernel, on ranks that its
    sharding type allows, with enough memory. Planning must leave the model's weights unchanged.
    """
    if problem.weights_digest and weights_digest(problem.module) != problem.weights_digest:
        raise InfeasibleDecision("Planning has changed the model's weights.")
    for option in plan.options:
        if option.compute_kernel not in problem.kernels:
            raise InfeasibleDecision(
                f"Table {option.name} uses kernel '{option.compute_kernel}', which is not allowed."
            )
    ranks = problem.topology.world_size, problem.topology.intra_group_size
    check_plan(plan.options, problem.fqns, *ranks, problem.usable_hbm, problem.usable_ddr)

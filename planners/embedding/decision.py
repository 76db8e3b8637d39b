"""The decision: a sharding plan, how a planner makes it, its fingerprint and its validation."""

from collections.abc import Callable
from dataclasses import dataclass

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError, ShardingOption

from harness.contract import InfeasibleDecision, Prepared
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.shard_checks import check_memory, check_names, check_tiling, storage_of
from planners.embedding.torchrec_objects import fingerprint_of, said_by


@dataclass(frozen=True, slots=True)
class Plan:
    """One chosen option for each table, with the rank of every shard."""

    options: tuple[ShardingOption, ...]


def plan_with(problem: EmbeddingProblem, planner: EmbeddingShardingPlanner) -> Plan:
    """Run a new planner on the problem.

    Raises:
        InfeasibleDecision: the planner found no plan.
    """
    try:
        planner.plan(problem.module, problem.sharders)
    except PlannerError as error:
        reason = str(error).strip().partition("\n")[0].strip(" .")
        raise InfeasibleDecision(
            f"{reason} ({planner._num_plans} of {planner._num_proposals} proposals could be placed)"
        ) from error
    return Plan(tuple(planner._best_plan or ()))


def new_planner(
    problem: EmbeddingProblem,
    planner: Callable[..., EmbeddingShardingPlanner] = EmbeddingShardingPlanner,
    **components: object,
) -> Callable[[], EmbeddingShardingPlanner]:
    """Return a factory of planners on the problem; each component is a factory itself.

    Planner, enumerator and proposers all keep state (a second plan may be wrong), so every call
    gets new ones. Statistics are left out: printing a plan is not planning.
    """
    if problem.options is not None and "enumerator" not in components:
        is_torchrecs = planner is EmbeddingShardingPlanner
        kind = EmbeddingEnumerator if is_torchrecs else DistinctShardEnumerator
        components["enumerator"] = lambda: problem.enumerator(kind)

    def make() -> EmbeddingShardingPlanner:
        return planner(
            topology=problem.topology,
            batch_size=problem.batch_size,
            constraints=problem.constraints,
            storage_reservation=problem.storage_reservation(),
            stats=[],
            debug=False,
            **{name: component() for name, component in components.items() if callable(component)},
        )

    return make


def prepare(
    problem: EmbeddingProblem,
    planner: Callable[..., EmbeddingShardingPlanner] = EmbeddingShardingPlanner,
    **components: object,
) -> Prepared[Plan]:
    """Prepare a variant that plans with a new planner each time; arguments as `new_planner`."""
    make = new_planner(problem, planner, **components)
    return Prepared(run=lambda: plan_with(problem, make()))


def fingerprint(plan: Plan) -> str:
    """Hash what a plan says about each table: sharding type, kernel, and every shard's place."""
    return fingerprint_of(said_by(option, option.fqn) for option in plan.options)


def validate(problem: EmbeddingProblem, plan: Plan) -> None:
    """Check that a plan places every table once, whole, on ranks that exist and can hold it.

    Raises:
        InfeasibleDecision: it does not; says which table or rank.
    """
    tables = dict(zip(problem.fqns, problem.tables, strict=True))
    check_names([option.fqn for option in plan.options], tables)
    for option in plan.options:
        if option.compute_kernel not in problem.kernels:
            raise InfeasibleDecision(
                f"Table {option.name} uses kernel '{option.compute_kernel}', which is not allowed."
            )
        size = tables[option.fqn].rows, tables[option.fqn].dim
        ranks = problem.topology.world_size
        check_tiling(option.name, option.sharding_type, option.shards, size, ranks)
    shards = [shard for option in plan.options for shard in option.shards]
    check_memory(shards, problem.usable_hbm, problem.usable_ddr)


def storage_by_rank(problem: EmbeddingProblem, plan: Plan) -> tuple[list[int], list[int]]:
    """Return the bytes of HBM and of DDR that each rank needs."""
    shards = [shard for option in plan.options for shard in option.shards]
    hbm, ddr = (storage_of(shards, problem.topology.world_size, kind) for kind in ("hbm", "ddr"))
    return hbm, ddr


def perf_by_rank(problem: EmbeddingProblem, plan: Plan) -> list[float]:
    """Return the milliseconds of each rank, summed as torchrec's perf model sums them."""
    perf = [0.0] * problem.topology.world_size
    for option in plan.options:
        for shard in option.shards:
            perf[shard.rank] += shard.perf.total
    return perf

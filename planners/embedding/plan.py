"""The decision: a sharding plan, its fingerprint and its validation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError, Shard, ShardingOption
from torchrec.distributed.types import ShardingType

from harness.registry import InfeasibleDecision
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.enumeration import DistinctShardEnumerator
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


def fingerprint(plan: Plan) -> str:
    """Hash what a plan says about each table: sharding type, kernel, and every shard's place."""
    return fingerprint_of(said_by(option, option.fqn) for option in plan.options)


def validate(problem: EmbeddingProblem, plan: Plan) -> None:
    """Check that a plan places every table once, whole, on ranks that exist and can hold it.

    Raises:
        InfeasibleDecision: it does not; says which table or rank.
    """
    placed = [option.fqn for option in plan.options]
    tables = dict(zip(problem.fqns, problem.tables, strict=True))
    expected = list(tables)
    if sorted(placed) != sorted(expected):
        wrong = sorted(set(placed) ^ set(expected)) or sorted(
            name for name in set(placed) if placed.count(name) > 1
        )
        raise InfeasibleDecision(
            f"The plan does not place each table once: {wrong[0].lstrip('.')}."
        )
    for option in plan.options:
        if option.compute_kernel not in problem.kernels:
            raise InfeasibleDecision(
                f"Table {option.name} uses kernel '{option.compute_kernel}', which is not allowed."
            )
        table = tables[option.fqn]
        check_tiling(
            option.name,
            option.sharding_type,
            option.shards,
            (table.rows, table.dim),
            problem.topology.world_size,
        )
    shards = [shard for option in plan.options for shard in option.shards]
    check_memory(shards, problem.usable_hbm, problem.usable_ddr)


def check_tiling(
    table: str,
    sharding_type: str,
    shards: Sequence[Shard],
    size: tuple[int, int],
    world_size: int,
) -> None:
    """Check that shards are on ranks and tile their table: inside, no two overlapping, no gap.

    With `data_parallel` each rank must have the whole table instead.

    Raises:
        InfeasibleDecision: they do not; says which shard of the table.
    """
    boxes = []
    for number, shard in enumerate(shards):
        if shard.rank is None or not 0 <= shard.rank < world_size:
            raise InfeasibleDecision(
                f"Shard {number} of table {table} is on rank {shard.rank} of {world_size}."
            )
        (row, column), (rows, columns) = shard.offset, shard.size
        if rows > 0 and columns > 0:
            boxes.append((row, column, row + rows, column + columns, number))
    if sharding_type == ShardingType.DATA_PARALLEL.value:
        if sorted(shard.rank for shard in shards) != list(range(world_size)) or any(
            box[:4] != (0, 0, *size) for box in boxes
        ):
            raise InfeasibleDecision(f"Table {table} is not whole on every rank.")
        return
    said = f"The shards of table {table} do not tile it"
    for top, left, bottom, right, number in boxes:
        if top < 0 or left < 0 or bottom > size[0] or right > size[1]:
            raise InfeasibleDecision(f"{said}: shard {number} is not inside.")
    overlap = _overlap(boxes)
    if overlap:
        raise InfeasibleDecision(f"{said}: shards {overlap[0]} and {overlap[1]} overlap.")
    missing = size[0] * size[1] - sum(
        (bottom - top) * (right - left) for top, left, bottom, right, _ in boxes
    )
    if missing:
        raise InfeasibleDecision(f"{said}: {missing:,} of its weights are in none.")


def _overlap(boxes: list[tuple[int, int, int, int, int]]) -> tuple[int, int] | None:
    """Return the numbers of two shards that overlap, the lower one first."""
    ordered = sorted(boxes)
    for index, (_, left, bottom, right, number) in enumerate(ordered):
        for top, other_left, _, other_right, other in ordered[index + 1 :]:
            if top >= bottom:
                break  # and so are all that come after it
            if left < other_right and other_left < right:
                return min(number, other), max(number, other)
    return None


def check_memory(
    shards: Iterable[Shard], usable_hbm: Sequence[int], usable_ddr: Sequence[int]
) -> None:
    """Check that ranks can hold their shards; `usable_hbm` and `usable_ddr` are bytes of each.

    Raises:
        InfeasibleDecision: one cannot; says which, and of what memory.
    """
    hbm, ddr = _storage(shards, len(usable_hbm))
    for kind, used, usable in (("HBM", hbm, usable_hbm), ("DDR", ddr, usable_ddr)):
        over = [part - whole for part, whole in zip(used, usable, strict=True)]
        rank = max(range(len(over)), key=over.__getitem__)
        if over[rank] > 0:
            raise InfeasibleDecision(
                f"Rank {rank} needs {used[rank]} bytes of {kind} and has {usable[rank]}."
            )


def storage_by_rank(problem: EmbeddingProblem, plan: Plan) -> tuple[list[int], list[int]]:
    """Return the bytes of HBM and of DDR that each rank needs."""
    shards = (shard for option in plan.options for shard in option.shards)
    return _storage(shards, problem.topology.world_size)


def _storage(shards: Iterable[Shard], world_size: int) -> tuple[list[int], list[int]]:
    hbm, ddr = [0] * world_size, [0] * world_size
    for shard in shards:
        assert shard.rank is not None
        assert shard.storage is not None
        hbm[shard.rank] += shard.storage.hbm
        ddr[shard.rank] += shard.storage.ddr
    return hbm, ddr


def perf_by_rank(problem: EmbeddingProblem, plan: Plan) -> list[float]:
    """Return the milliseconds of each rank, summed as torchrec's perf model sums them."""
    perf = [0.0] * problem.topology.world_size
    for option in plan.options:
        for shard in option.shards:
            assert shard.rank is not None
            assert shard.perf is not None
            perf[shard.rank] += shard.perf.total
    return perf

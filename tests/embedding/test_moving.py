"""Bytes moved from a previous plan: changed shards, tables and ranks; files, `Planner`, fronts."""

import logging
import math
from dataclasses import replace
from unittest import mock

import planned
import pytest
import torch
from hypothesis import given, settings, strategies as st
from planned import new_planner
from torch import nn
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.types import PlannerError, Shard, ShardingOption, Storage

from harness.contract import UsageError
from harness.model.files import to_json
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, fingerprint, validate
from planners.embedding.plan_files.table import PlannedTable, PlanTable
from planners.embedding.planning import PLANNING, document
from planners.embedding.quality import quality
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.options import unmade_shards

GIB = 2**30
ROWS, DIM = 100, 8


@pytest.fixture(autouse=True, scope="module")
def _little_work():
    with mock.patch("planners.embedding.best_plan.search.WORK_PER_SECOND", 1e6):
        yield


def now(sharding_type, *shards, kernel="fused", name="a", rows=ROWS, optimizer=None):
    """Return an option of a table; a shard is (box, rank), as in `before`."""
    tensor = torch.empty(rows, DIM, device="meta")
    if optimizer:
        tensor._optimizer_classes = [optimizer]
    return ShardingOption(
        name=name,
        tensor=tensor,
        module=("", nn.Module()),
        input_lengths=[1.0],
        batch_size=1,
        sharding_type=sharding_type,
        partition_by=get_partition_by_type(sharding_type),
        compute_kernel=kernel,
        shards=[
            Shard([bottom - top, right - left], [top, left], Storage(1, 0), rank=rank)
            for (top, left, bottom, right), rank in shards
        ],
    )


def on(rank, rows=ROWS, **values):
    """Return an option with the whole table on a rank."""
    return now("table_wise", ((0, 0, rows, DIM), rank), rows=rows, **values)


def before(sharding_type, *shards, kernel="fused"):
    """Return a previous plan of table `a`; a shard is (box, rank)."""
    boxes, ranks = zip(*shards, strict=True)
    return PlanTable({"a": PlannedTable(sharding_type, kernel, boxes, ranks, 4)})


LEFT, RIGHT = (0, 0, ROWS, 4), (0, 4, ROWS, 8)
WHOLE = ROWS * DIM * 4
ON_1 = before("table_wise", ((0, 0, ROWS, DIM), 1))
HALVES = before("column_wise", (LEFT, 0), (RIGHT, 1))


@pytest.mark.parametrize(
    ("previous", "option", "moved"),
    [
        (ON_1, on(1), 0),
        (ON_1, on(2), WHOLE),
        (ON_1, on(1, kernel="dense"), WHOLE),
        (HALVES, now("column_wise", (LEFT, 0), (RIGHT, 2)), WHOLE // 2),
        (HALVES, on(0), WHOLE),
        # What has grown stays where it was; of what has shrunk only what is left counts.
        (ON_1, on(1, rows=150), 0),
        (ON_1, on(0, rows=150), WHOLE),
        (ON_1, on(0, rows=50), WHOLE // 2),
        (ON_1, on(0, name="new"), 0),
        (ON_1, on(0, optimizer=torch.optim.SGD), WHOLE),
        (ON_1, on(0, optimizer=torch.optim.Adam), 3 * WHOLE),
    ],
)
def test_bytes_move_of_shards_whose_rank_kernel_or_cut_changes(previous, option, moved):
    """Of new tables none do; the state of the optimizer moves with the weights."""
    assert previous.bytes_moved([option], 4) == moved


def test_ranks_that_went_away_are_closed_up():
    """A rank beyond the last is gone, too."""
    plan = before("column_wise", (LEFT, 1), (RIGHT, 3)).without([1, 2])
    assert plan.tables["a"].ranks == (-1, 1)
    stays = now("column_wise", (LEFT, 0), (RIGHT, 1))
    assert plan.bytes_moved([stays], 2) == WHOLE // 2
    assert plan.moves([stays], 2).home.tolist() == [-1, 1]
    assert plan.moves([stays], 1).home.tolist() == [-1, -1]


def the_problem(tables=12, gpus=8, seed=5):
    return planned.problem(f"synthetic[tables={tables},seed={seed}]", gpus)


@pytest.fixture(scope="module")
def problem():
    return the_problem()


@pytest.fixture(scope="module")
def plan(problem) -> Plan:
    return FAMILY.find("compiled").prepared(problem).run()


@pytest.fixture
def file(problem, plan, tmp_path):
    path = tmp_path / "old.json"
    path.write_text(to_json(document(problem, plan)))
    return path


def near(problem, file, gib, lost=()):
    return PLANNING.moving.within(problem, file, gib, lost)


def best(problem) -> Plan:
    plan = FAMILY.find("certified").prepared(problem).run()
    validate(problem, plan)
    return plan


def test_a_budget_is_kept_and_makes_the_plan_better(problem, plan, file):
    """Without a budget nothing moves."""
    problems = [near(problem, file, gib) for gib in (0.0, 5.0, math.inf)]
    plans = [best(each) for each in problems]
    moved = [*map(PLANNING.moving.moved, problems, plans)]
    assert moved[0] == 0 < moved[1] <= 5.0
    assert fingerprint(plans[0]) == fingerprint(plan)
    rated = [*map(quality, problems, plans)]
    assert rated[0]["gap"] == pytest.approx(0, abs=1e-6)
    ms = [figures["max_rank_ms"] for figures in rated]
    assert ms[0] > ms[1] >= ms[2]
    assert all(figures["bound_ms"] <= figures["max_rank_ms"] for figures in rated)


@pytest.mark.parametrize("measured", [False, True])
def test_a_front_moves_more_and_more_for_less_and_less(problem, plan, file, measured):
    """The front starts from a plan in a file, or from a measured plan."""
    start = PLANNING.moving.near(problem, plan) if measured else near(problem, file, math.inf)
    front = list(PLANNING.moving.front(start))
    moved = [PLANNING.moving.moved(*point) for point in front]
    ms = [quality(*point)["max_rank_ms"] for point in front]
    assert len(front) > 2
    assert moved[0] == 0
    assert fingerprint(front[0][1]) == fingerprint(plan)
    assert moved == sorted(moved)
    assert ms == sorted(ms, reverse=True)
    for point in front:
        validate(*point)
        assert quality(*point)["bound_ms"] <= quality(*point)["max_rank_ms"]


@pytest.mark.parametrize(
    ("tables", "gpus", "lost"), [(14, 8, ()), (12, 16, ()), (12, 4, (0, 1, 2, 5))]
)
def test_new_tables_new_ranks_and_lost_ranks_are_planned_for(file, tables, gpus, lost):
    """The budget is kept if any plan keeps it."""
    problem = the_problem(tables, gpus)
    moving, least = (near(problem, file, gib, lost) for gib in (20.0, 0.0))
    forced = PLANNING.moving.moved(least, best(least))
    assert PLANNING.moving.moved(moving, best(moving)) <= max(20.0, forced)


@pytest.mark.parametrize(
    ("earlier", "now", "matched"),
    [
        (["a.t"], ["a.t", "b.t"], {"a.t": "a.t"}),
        (["a.t", "b.t"], ["a.t", "c.t"], {"a.t": "a.t", "c.t": "b.t"}),
        (["t"], ["a.t", "a.u"], {"a.t": "t"}),
        (["a.t"], ["a.u"], {}),
        (["a.t", "b.t"], ["c.t"], None),
        (["t"], ["a.t", "b.t"], None),
    ],
)
def test_equal_names_are_matched_or_refused(earlier, now, matched):
    """Equal paths go first, then a name that one table on each side has; else it is an error."""
    tables = {fqn: replace(ON_1.tables["a"], ranks=(n,)) for n, fqn in enumerate(earlier)}
    if matched is None:
        with pytest.raises(UsageError, match="unclear which of them is which"):
            PlanTable(tables).match(now)
    else:
        expected = {fqn: tables[old] for fqn, old in matched.items()}
        assert PlanTable(tables).match(now) == expected


def replanner(file, problem=None, **arguments):
    """Return a planner near the plan in a file."""
    problem = problem or the_problem()
    return new_planner(problem, mode="best-plan", previous=file, **arguments)


def test_the_drop_in_takes_torchrecs_plan_or_a_file(problem, file):
    """DistributedModelParallel puts `module` before each path of the present plan."""
    first = new_planner(problem).plan(problem.module, problem.sharders)
    wrapped = type(first)({f"module.{path}": module for path, module in first.plan.items()})
    for previous in (first, wrapped, file, str(file), PlanTable.of(file)):
        again = replanner(previous, move_budget=0)
        assert str(again.plan(problem.module, problem.sharders)) == str(first)
        assert again.moved_gib == 0
    moving = replanner(first, move_budget=5.0, check=True)
    moving.plan(problem.module, problem.sharders)
    assert 0 < moving.moved_gib <= 5.0


def test_a_budget_that_cannot_be_kept_is_logged(file, caplog):
    """The plan is that which moves least."""
    fewer = the_problem(gpus=4)
    moving = replanner(file, fewer, move_budget=0, debug=True)
    with caplog.at_level(logging.WARNING):
        moving.plan(fewer.module, fewer.sharders)
    assert moving.moved_gib > 0
    assert "No plan was found that moves at most 0 GiB; this one moves" in caplog.text


class _Own(GreedyPerfPartitioner):
    pass


def _near_other_tables(file):
    other = the_problem()
    tables = tuple(replace(table, name=f"my_{table.name}") for table in other.tables)
    return near(replace(other, tables=tables), file, 1.0)


def _near_without_the_compiled_search(file):
    problem = the_problem()
    replanner(file, partitioner=_Own()).plan(problem.module, problem.sharders)


REFUSED = {
    "of 8 ranks has no such rank": lambda file: near(the_problem(), file, 1.0, [2, 20]),
    "Rank -1 cannot be lost": lambda file: replanner(file, lost_ranks=[-1]),
    "Rank 20 cannot be lost": lambda file: replanner(file, lost_ranks=[2, 20]),
    "is a plan of other tables: it places none of the 12": _near_other_tables,
    "near the previous one, since _Own is not compiled": _near_without_the_compiled_search,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_plan_that_moves_little_is_refused_with_its_reason(reason, file):
    """Ranks that the previous plan lacks cannot be lost; its tables must be those of the job."""
    with pytest.raises((UsageError, PlannerError), match=reason):
        REFUSED[reason](file)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 20), st.integers(0, 2), st.data())
def test_shards_that_are_not_created_move_the_same_bytes(seed, lost, data):
    """Moves are counted from layouts; here, from the shards that these create."""
    problem = the_problem(tables=6, gpus=8, seed=seed)
    enumerator = DistinctShardEnumerator(problem.topology, problem.batch_size, problem.constraints)
    options = enumerator.enumerate(problem.module, problem.sharders)
    tables = {}
    for option in options[:: data.draw(st.integers(1, 5))]:
        cut = zip(*unmade_shards(option).layout.cut(), strict=True)
        boxes = [(top, left, top + high, left + wide) for (high, wide), (top, left) in cut]
        ranks, kind = range(lost, lost + len(boxes)), (option.sharding_type, option.compute_kernel)
        tables[option.fqn] = PlannedTable(*kind, tuple(boxes), tuple(ranks), 4)
    plan = PlanTable(tables)
    unmade = plan.moves(options, 8)
    assert all(option.shards for option in options)  # makes them
    made = plan.moves(options, 8)
    assert unmade.home.tolist() == made.home.tolist()
    assert unmade.weight.tolist() == made.weight.tolist()

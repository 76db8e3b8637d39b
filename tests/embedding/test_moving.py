"""Bytes moved from a previous plan: changed shards, tables and ranks; files, `Planner`, fronts."""

import logging
import math
from dataclasses import replace
from itertools import pairwise
from unittest import mock

import built_problem
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.types import PlannerError, Shard, ShardingOption, Storage

from harness.contract import UsageError
from harness.model.files import to_json
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, fingerprint, validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_files.table import PlannedTable, PlanTable
from planners.embedding.planning import PLANNING, document
from planners.embedding.quality import quality
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.options import unmade_shards
from planners.embedding.search.space import search_space

GIB = 2**30
ROWS, DIM = 100, 8


@pytest.fixture(autouse=True, scope="module")
def _little_work():
    with mock.patch("planners.embedding.best_plan.search.WORK_PER_SECOND", 1e6):
        yield


def placed_option(sharding_type, *shards, kernel="fused", name="a", rows=ROWS, optimizer=None):
    """Return an option of a table; a shard is its first row, first column, size and rank."""
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
            Shard([rows, columns], [top, left], Storage(1, 0), rank=rank)
            for top, left, rows, columns, rank in shards
        ],
    )


def before(sharding_type="table_wise", *shards, kernel="fused", rows=ROWS):
    """Return a previous plan of table `a`; a shard is (box, rank), by default all on rank 1."""
    shards = shards or (((0, 0, rows, DIM), 1),)
    boxes, ranks = zip(*shards, strict=True)
    table = PlannedTable(sharding_type, kernel, boxes, ranks, 4)
    return PlanTable({"a": table})


WHOLE = ROWS * DIM * 4
HALVES = (((0, 0, ROWS, 4), 0), ((0, 4, ROWS, 8), 1))


@pytest.mark.parametrize(
    ("was", "now", "moved"),
    [
        (before(), placed_option("table_wise", (0, 0, ROWS, DIM, 1)), 0),
        (before(), placed_option("table_wise", (0, 0, ROWS, DIM, 2)), WHOLE),
        (before(), placed_option("table_wise", (0, 0, ROWS, DIM, 1), kernel="dense"), WHOLE),
        (before(kernel="dense"), placed_option("table_wise", (0, 0, ROWS, DIM, 1)), WHOLE),
        (
            before("column_wise", *HALVES),
            placed_option("column_wise", (0, 0, ROWS, 4, 0), (0, 4, ROWS, 4, 2)),
            WHOLE // 2,
        ),
        (before("column_wise", *HALVES), placed_option("table_wise", (0, 0, ROWS, DIM, 0)), WHOLE),
        # What has grown stays where it was; of what has shrunk only what is left counts.
        (before(), placed_option("table_wise", (0, 0, 150, DIM, 1), rows=150), 0),
        (before(), placed_option("table_wise", (0, 0, 150, DIM, 0), rows=150), WHOLE),
        (before(), placed_option("table_wise", (0, 0, 50, DIM, 0), rows=50), WHOLE // 2),
        (before(), placed_option("table_wise", (0, 0, ROWS, DIM, 0), name="new"), 0),
        (
            before(),
            placed_option("table_wise", (0, 0, ROWS, DIM, 0), optimizer=torch.optim.Adam),
            3 * WHOLE,
        ),
    ],
)
def test_bytes_move_of_shards_whose_rank_kernel_or_cut_changes(was, now, moved):
    assert was.bytes_moved([now], 4) == moved


def test_ranks_that_went_away_are_closed_up():
    plan = before("column_wise", ((0, 0, ROWS, 4), 1), ((0, 4, ROWS, 8), 3)).without([1, 2])
    assert plan.tables["a"].ranks == (-1, 1)
    stays = placed_option("column_wise", (0, 0, ROWS, 4, 0), (0, 4, ROWS, 4, 1))
    assert plan.bytes_moved([stays], 2) == WHOLE // 2
    assert plan.moves([stays], 2).home.tolist() == [-1, 1]
    assert plan.moves([stays], 1).home.tolist() == [-1, -1]  # a rank beyond the last is gone


@pytest.mark.parametrize("lost", [[-1], [2, 20]])
def test_only_ranks_of_the_plan_can_be_lost(problem, file, lost):
    with pytest.raises(UsageError, match="plan of 8 ranks has no such rank"):
        near(problem, file, 1.0, lost)
    with pytest.raises(UsageError, match=f"Rank {lost[-1]} cannot be lost"):
        planner(problem, mode="best-plan", previous=file, lost_ranks=lost)


def the_problem(tables=12, gpus=8, seed=5):
    return built_problem.problem(f"synthetic[tables={tables},seed={seed}]", gpus=gpus)


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


def planned(problem) -> Plan:
    found = FAMILY.find("certified").prepared(problem).run()
    validate(problem, found)
    return found


def test_a_budget_is_kept_and_makes_the_plan_better(problem, plan, file):
    rated, found = [], []
    for gib in (0.0, 5.0, math.inf):
        moving = near(problem, file, gib)
        found.append(planned(moving))
        assert PLANNING.moving.moved(moving, found[-1]) <= gib
        rated.append(quality(moving, found[-1]))
    assert fingerprint(found[0]) == fingerprint(plan)
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


def test_a_large_problem_has_no_front_next_to_its_plan(problem, plan):
    many = replace(problem, tables=problem.tables * 40)
    assert PLANNING.moving.near(many, plan) is None


@pytest.mark.parametrize(
    ("tables", "gpus", "lost"), [(14, 8, ()), (12, 16, ()), (12, 4, (0, 1, 2, 5))]
)
def test_new_tables_new_ranks_and_lost_ranks_are_planned_for(
    problem, plan, file, tables, gpus, lost
):
    other = the_problem(tables, gpus)
    moving = near(other, file, 20.0, lost)
    found = planned(moving)
    least = near(other, file, 0.0, lost)
    forced = PLANNING.moving.moved(least, planned(least))
    assert PLANNING.moving.moved(moving, found) <= max(20.0, forced)


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
    tables = {fqn: replace(before().tables["a"], ranks=(n,)) for n, fqn in enumerate(earlier)}
    if matched is None:
        with pytest.raises(UsageError, match="unclear which of them is which"):
            PlanTable(tables).match(now)
    else:
        expected = {fqn: tables[old] for fqn, old in matched.items()}
        assert PlanTable(tables).match(now) == expected


@pytest.mark.parametrize("optimizer", [None, torch.optim.SGD, torch.optim.Adam])
def test_all_bytes_are_those_that_a_move_of_everything_counts(optimizer):
    """A budget is a share of weights and optimizer state, as moves are."""
    option = placed_option("table_wise", (0, 0, ROWS, DIM, 0), optimizer=optimizer)
    everything = before().total_bytes([option, option])
    assert everything == before().bytes_moved([option], 4)
    assert everything == WHOLE * (3 if optimizer is torch.optim.Adam else 1)


def test_a_file_of_other_tables_is_refused(file):
    other = the_problem()
    other = replace(other, tables=tuple(replace(t, name=f"my_{t.name}") for t in other.tables))
    with pytest.raises(UsageError, match="is a plan of other tables: it places none of the 12"):
        near(other, file, 1.0)


def planner(problem, **options):
    return Planner(
        topology=problem.topology,
        constraints=problem.constraints,
        storage_reservation=problem.storage_reservation(),
        stats=[],
        **{"debug": False, **options},
    )


def test_the_drop_in_takes_torchrecs_plan_or_a_file(problem, file):
    """DistributedModelParallel puts `module` before each path of the present plan."""
    first = planner(problem).plan(problem.module, problem.sharders)
    wrapped = type(first)({f"module.{path}": module for path, module in first.plan.items()})
    for previous in (first, wrapped, file, str(file), PlanTable.of(file)):
        again = planner(problem, mode="best-plan", previous=previous, move_budget=0)
        assert str(again.plan(problem.module, problem.sharders)) == str(first)
        assert again.moved_gib == 0
    moving = planner(problem, mode="best-plan", previous=first, move_budget=5.0, check=True)
    moving.plan(problem.module, problem.sharders)
    assert 0 < moving.moved_gib <= 5.0


def test_a_budget_that_cannot_be_kept_is_logged(problem, file, caplog):
    fewer = the_problem(gpus=4)
    moving = planner(fewer, mode="best-plan", previous=file, move_budget=0, debug=True)
    with caplog.at_level(logging.WARNING):
        moving.plan(fewer.module, fewer.sharders)
    assert moving.moved_gib > 0
    assert "No plan was found that moves at most 0 GiB; this one moves" in caplog.text


def test_nothing_moves_by_a_search_that_counts_no_moves(problem, file):
    """With a partitioner of the user's own, a plan near a previous one is refused."""

    class Own(GreedyPerfPartitioner):
        pass

    own = planner(problem, mode="best-plan", previous=file, partitioner=Own())
    with pytest.raises(PlannerError, match="near the previous one, since Own is not compiled"):
        own.plan(problem.module, problem.sharders)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 20), st.integers(0, 2), st.sampled_from([0, -1, 7]), st.data())
def test_shards_that_are_not_created_move_the_same_bytes(seed, lost, grown, data):
    """Moves are counted from layouts; here, from the shards that these create."""
    problem = the_problem(tables=6, gpus=8, seed=seed)
    enumerator = DistinctShardEnumerator(problem.topology, problem.batch_size, problem.constraints)
    options = enumerator.enumerate(problem.module, problem.sharders)
    tables = {}
    for option in options[:: data.draw(st.integers(1, 5))]:
        sizes, offsets = unmade_shards(option).layout.cut()
        boxes = [(r, c, r + h, c + w) for (r, c), (h, w) in zip(offsets, sizes, strict=True)]
        rows = option.tensor.shape[0]
        boxes = [(r, c, end + grown * (end == rows), right) for r, c, end, right in boxes]
        ranks = tuple(range(lost, lost + len(boxes)))
        kind = option.sharding_type, option.compute_kernel
        tables[option.fqn] = PlannedTable(*kind, tuple(boxes), ranks, 4)
    plan = PlanTable(tables)
    before = plan.moves(options, 8)
    assert all(unmade_shards(option) is not None for option in options)
    for option in options:
        option.shards  # noqa: B018  # creates the shards
    after = plan.moves(options, 8)
    assert before.home.tolist() == after.home.tolist()
    assert before.weight.tolist() == after.weight.tolist()
    space = search_space(options)
    away = np.where(after.home < 0, after.weight, 0)
    assert before.least_moved(space).tolist() == [
        int(away[first:end].sum()) for first, end in pairwise(space.first_shard)
    ]

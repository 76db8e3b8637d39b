"""Explanations of plans: their figures add up, and match those of real plans."""

import copy
import json
from functools import cache
from io import StringIO
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_options import random_case
from rich.console import Console
from torchrec.distributed.planner.perf_models import NoopPerfModel

from harness.contract import Question, UsageError, WorkloadSpec
from harness.model.ids import CellId
from harness.planning.plan import Explained
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.presolve import presolved
from planners.embedding.best_plan.proofs import ladder
from planners.embedding.explain.arguments import reasons
from planners.embedding.explain.explain import explain, explain_table, explained, written
from planners.embedding.explain.placement import PlacedPlan
from planners.embedding.explain.records import PERF, PlanExplained
from planners.embedding.quality import arrays, quality
from planners.embedding.search.space import devices_of, load_of_plan, search_space
from shardbench.commands.explain import shown

CASES = (
    ("synthetic[tables=6,seed=1]", 4, "upstream"),
    ("synthetic[tables=8,seed=7,memory=tight]", 16, "upstream"),
    ("synthetic[tables=6,seed=3,memory=mixed]", 8, "certified"),
    ("dlrm-856[tables=10,seed=1]", 16, "uniform"),
)


@cache
def planned(workload: str, gpus: int, variant: str):
    problem = FAMILY.work.build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", gpus))
    return problem, FAMILY.find(variant).prepared(problem).run()


@cache
def found(case) -> PlanExplained:
    """Explain a plan against the best plan; cached, since the bound takes seconds."""
    problem, plan = planned(*case)
    other = planned(*case[:2], "certified")[1]
    return explained(problem, plan, Question(None, 4, "certified", other))


@pytest.mark.parametrize("case", CASES)
def test_the_figures_of_the_rank_add_up(case):
    problem, plan = planned(*case)
    seen = found(case)
    perf = load_of_plan(plan.options, problem.topology.world_size).perf
    assert seen.ranks_ms == pytest.approx(perf)
    assert seen.slowest_ms == pytest.approx(max(perf))
    assert seen.rank.rank == seen.slowest_rank
    rank = seen.rank
    assert sum(shard.ms for shard in rank.shards) == pytest.approx(rank.ms)
    assert sum(shard.share for shard in rank.shards) == pytest.approx(1)
    assert sum(rank.perf_ms.values()) == pytest.approx(rank.ms)
    for shard in rank.shards:
        assert sum(shard.perf_ms[name] for name in PERF) == pytest.approx(shard.ms)
    assert sum(shard.hbm_bytes for shard in rank.shards) == rank.hbm_bytes
    costs = [shard.ms for shard in rank.shards]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("case", CASES)
def test_it_says_what_quality_says(case):
    seen, rated = found(case), quality(*planned(*case))
    assert seen.slowest_ms == pytest.approx(rated["max_rank_ms"])
    assert seen.mean_ms == pytest.approx(rated["mean_rank_ms"])
    assert seen.bound.ms == pytest.approx(rated["bound_ms"], rel=1e-9)
    fullest = {each.kind: each.bytes / each.usable_bytes for each in seen.memory}
    assert fullest["HBM"] == pytest.approx(rated["hbm_peak_fraction"])
    assert fullest.get("DDR", 0.0) == pytest.approx(rated["ddr_peak_fraction"])


@pytest.mark.parametrize("case", CASES)
def test_the_present_option_is_the_present_plan_and_nothing_betters_the_bound(case):
    _, plan = planned(*case)
    by_name = {option.name: option for option in plan.options}
    seen = found(case)
    for table in seen.tables:
        now, *others = table.alternatives
        option = by_name[table.table]
        assert now.present
        assert not any(each.present for each in others)
        assert (now.sharding_type, now.compute_kernel, now.shards) == (
            option.sharding_type, option.compute_kernel, len(option.shards),
        )  # fmt: skip
        assert now.slowest_rank_ms == pytest.approx(seen.slowest_ms)
        assert now.this_rank_ms == pytest.approx(seen.rank.ms)
        assert now.ms == pytest.approx(sum(shard.perf.total for shard in option.shards))
        for each in table.alternatives:
            assert (each.slowest_rank_ms is None) == bool(each.why_not)
            assert each.largest_shard_ms <= each.ms * (1 + 1e-12)
            if each.slowest_rank_ms is not None:
                assert each.slowest_rank_ms >= seen.bound.ms * (1 - 1e-9)
                assert each.slowest_rank_ms >= each.this_rank_ms
            if each.lacking:
                assert each.needed_bytes > each.free_bytes


@pytest.mark.parametrize("case", CASES)
def test_an_alternative_rates_as_torchrec_rates_the_plan_with_it(case):
    """Checks row-wise alternatives, which have only one placement: shard i on rank i."""
    problem, plan = planned(*case)
    space, _ = arrays(problem)
    checked = 0
    for table in found(case).tables:
        for each in table.alternatives[1:]:
            if each.sharding_type != "row_wise" or each.slowest_rank_ms is None:
                continue
            kind = table.table, "row_wise", each.compute_kernel
            kinds = [(o.name, o.sharding_type, o.compute_kernel) for o in space.options]
            option = copy.deepcopy(space.options[kinds.index(kind)])
            for rank, shard in enumerate(option.shards):
                shard.rank = rank
            others = [other for other in plan.options if other.name != table.table]
            rating = NoopPerfModel(problem.topology).rate([*others, option])
            assert each.slowest_rank_ms == pytest.approx(rating)
            checked += 1
    assert checked or case[2] != "uniform"


@pytest.mark.parametrize("case", CASES)
def test_a_table_put_back_where_it_was_gives_the_plan_again(case):
    problem, plan = planned(*case)
    placed = PlacedPlan(plan.options, problem.topology.world_size)
    whole = placed.load()
    for place in range(len(plan.options)):
        others, alone = placed.load(without=place), placed.load(only=place)
        assert others.perf + alone.perf == pytest.approx(whole.perf)
        assert (others.used + alone.used == whole.used).all()


def test_the_difference_to_another_plan_adds_up_and_is_that_of_real_plans():
    case, other = CASES[3], "certified"
    seen = found(case).against
    problem, plan = planned(*case)
    theirs = planned(*case[:2], other)[1]
    slowest = load_of_plan(theirs.options, problem.topology.world_size).rating
    assert seen.slowest_ms == pytest.approx(slowest)
    assert sum(table.mean_ms for table in seen.tables) == pytest.approx(seen.by_options_ms)
    difference = found(case).slowest_ms - seen.slowest_ms
    assert seen.by_options_ms + seen.by_balance_ms == pytest.approx(difference)
    assert seen.other_options + seen.other_ranks == len(seen.tables) > 0
    there = {option.name: option for option in theirs.options}
    for table in seen.tables:
        mixed = [there[o.name] if o.name == table.table else o for o in plan.options]
        alone = load_of_plan(mixed, problem.topology.world_size).rating
        assert table.alone_ms == pytest.approx(alone)


def test_a_variant_that_decides_the_same_differs_in_nothing():
    problem, plan = planned(*CASES[0])
    same = FAMILY.find("compiled").prepared(problem).run()
    seen = explain(problem, plan, Question(None, 1, "compiled", same))
    assert seen.document["against"]["tables"] == ()
    assert any("decides the same" in sentence for sentence in seen.sentences)


def test_every_rank_can_be_asked_for_and_no_other():
    for rank in range(4):
        assert explained(*planned(*CASES[0]), Question(rank, 1)).rank.rank == rank
    for rank in (-1, 4, 10**30):
        with pytest.raises(UsageError, match=f"no rank {rank}"):
            explained(*planned(*CASES[0]), Question(rank, 1))


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_the_arguments_prove_what_the_bound_says_and_the_first_that_does_is_binding(seed):
    case = random_case(Random(seed), towers=False)
    space, devices = search_space(case.options), devices_of(case.topology)
    bound = ladder(candidates(space, devices))[-1].milliseconds
    if len(presolved(candidates(space, devices)).without_options):
        assert bound == np.inf
        with pytest.raises(ValueError, match="has no room"):
            reasons(space, devices)
        return
    seen = reasons(space, devices)
    assert seen.milliseconds == pytest.approx(bound)
    proven = seen.proven
    if not np.isfinite(bound):
        return
    assert max(proven["table"], proven["work"]) <= proven["shards"] * (1 + 1e-9)
    assert proven["shards"] <= proven["memory"] * (1 + 1e-9) + 1e-12
    names = list(proven)
    for name in names[: names.index(seen.binding)]:
        assert proven[name] < seen.milliseconds
    assert proven[seen.binding] == pytest.approx(seen.milliseconds)


@pytest.mark.parametrize(
    ("workload", "gpus", "binding"),
    [
        ("synthetic[tables=1,seed=5]", 8, "table"),
        ("synthetic[tables=8,seed=7]", 1, "work"),
        ("dlrm-856[tables=60,seed=1]", 16, "work"),
        ("dlrm-856[tables=40,seed=1]", 8, "shards"),
        ("synthetic[tables=6,seed=3,memory=mixed]", 8, "ranks"),
    ],
)
def test_what_binds(workload, gpus, binding):
    problem = FAMILY.work.build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", gpus))
    assert reasons(*arrays(problem)).binding == binding


@pytest.mark.parametrize("case", CASES)
def test_it_is_shown_in_80_columns_and_is_json(case):
    made = written(found(case), 3)
    cell = CellId.parse(f"embedding/{case[2]}@{case[0]}/dgx_a100_80gb:{case[1]}")
    console = Console(width=80, record=True, file=StringIO())
    console.print(shown(Explained(cell, "certified", made, 0.1)))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert made.document["rank"]["rank"] == made.document["slowest_rank"]
    json.dumps(made.document, allow_nan=False)


@pytest.mark.parametrize("case", CASES)
def test_a_single_table_has_all_its_options_and_what_forbids_others(case):
    """Every enumerated option of the table is there, with its cost or the reason against it."""
    problem, plan = planned(*case)
    space, _ = arrays(problem)
    for placed in plan.options:
        made = explain_table(problem, plan, Question(table=placed.name))
        document = made.document
        options = [option for option in space.options if option.name == placed.name]
        kinds = {(option.sharding_type, option.compute_kernel) for option in options}
        now, *others = document["alternatives"]
        assert now["present"]
        assert now["slowest_rank_ms"] == quality(problem, plan)["max_rank_ms"]
        listed = {(each["sharding_type"], each["compute_kernel"]) for each in (now, *others)}
        assert listed == kinds
        assert all(each["why_not"] or each["slowest_rank_ms"] for each in others)
        assert document["left_out"]["data_parallel"] == "its sharder does not offer it"
        assert placed.name in made.sentences[0]
        least = min(each["slowest_rank_ms"] for each in (now, *others) if not each["why_not"])
        helps = least < now["slowest_rank_ms"] * (1 - 1e-9)
        assert helps == ("With this table as" in made.sentences[0])


def test_a_table_that_does_not_exist_is_refused():
    """An unknown table's name is an error with similar names."""
    with pytest.raises(UsageError, match="Unknown table 'tabel_0'; did you mean table_0"):
        explain_table(*planned(*CASES[0]), Question(table="tabel_0"))

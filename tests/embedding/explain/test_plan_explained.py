"""Explanations of plans: their figures add up, and match those of real plans."""

from functools import cache
from random import Random

import numpy as np
import pytest
from built_problem import problem as built
from hypothesis import assume, given, settings, strategies as st
from random_options import random_case
from small_problems import load, problems, ways

from harness.contract import Question, UsageError
from planners.embedding import FAMILY
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.parts import parts_of
from planners.embedding.best_plan.presolve import presolved
from planners.embedding.explain.alternatives import placed
from planners.embedding.explain.bound import reasons
from planners.embedding.explain.explain import explain, explain_table
from planners.embedding.quality import arrays, quality
from planners.embedding.search.space import Load, devices_of, load_of_plan, search_space

CASES = (
    ("synthetic[tables=6,seed=1]", 4, "upstream"),
    ("synthetic[tables=8,seed=7,memory=tight]", 16, "upstream"),
    ("synthetic[tables=6,seed=3,memory=mixed]", 8, "certified"),
    ("dlrm-856[tables=10,seed=1]", 16, "uniform"),
)
of_cases = pytest.mark.parametrize("case", CASES)


@cache
def planned(workload: str, gpus: int, variant: str):
    problem = built(workload, gpus=gpus)
    return problem, FAMILY.find(variant).prepared(problem).run()


@cache
def explained(case):
    """Explain a plan against the best plan; cached, since the bound takes seconds."""
    other = planned(*case[:2], "certified")[1]
    return explain(*planned(*case), Question(None, 4, "certified", other))


@of_cases
def test_the_figures_of_the_ranks_add_up_and_are_those_of_quality(case):
    """Shards add up to the rank, and components to the shard."""
    problem, plan = planned(*case)
    seen, rated = explained(case).document, quality(problem, plan)
    perf = load_of_plan(plan.options, problem.topology.world_size).perf
    assert seen["ranks_ms"] == pytest.approx(perf)
    assert seen["slowest_ms"] == pytest.approx(rated["max_rank_ms"])
    assert seen["mean_ms"] == pytest.approx(rated["mean_rank_ms"])
    assert seen["bound"]["ms"] == pytest.approx(rated["bound_ms"], rel=1e-9)
    fullest = {kind["kind"]: kind["bytes"] / kind["usable_bytes"] for kind in seen["memory"]}
    assert fullest["HBM"] == pytest.approx(rated["hbm_peak_fraction"])
    assert fullest.get("DDR", 0.0) == pytest.approx(rated["ddr_peak_fraction"])
    rank = seen["rank"]
    assert rank["rank"] == seen["slowest_rank"]
    costs = [shard["ms"] for shard in rank["shards"]]
    assert costs == sorted(costs, reverse=True)
    assert sum(costs) == pytest.approx(rank["ms"])
    assert sum(rank["perf_ms"].values()) == pytest.approx(rank["ms"])
    for shard in rank["shards"]:
        assert sum(shard["perf_ms"].values()) == pytest.approx(shard["ms"])
        assert shard["share"] == pytest.approx(shard["ms"] / rank["ms"])
    assert sum(shard["hbm_bytes"] for shard in rank["shards"]) == rank["hbm_bytes"]


@of_cases
def test_alternatives_begin_with_the_present_plan_and_none_betters_the_bound(case):
    """An alternative has figures, or a reason why it is impossible."""
    _, plan = planned(*case)
    by_name = {option.name: option for option in plan.options}
    seen = explained(case).document
    for table in seen["tables"]:
        now, *others = table["alternatives"]
        option = by_name[table["table"]]
        assert [other["present"] for other in (now, *others)] == [True] + [False] * len(others)
        kind = now["sharding_type"], now["compute_kernel"], now["shards"]
        assert kind == (option.sharding_type, option.compute_kernel, len(option.shards))
        assert now["slowest_rank_ms"] == pytest.approx(seen["slowest_ms"])
        assert now["this_rank_ms"] == pytest.approx(seen["rank"]["ms"])
        for other in (now, *others):
            assert (other["slowest_rank_ms"] is None) == bool(other["why_not"])
            if not other["why_not"]:
                assert other["slowest_rank_ms"] >= seen["bound"]["ms"] * (1 - 1e-9)
                assert other["slowest_rank_ms"] >= other["this_rank_ms"]
            if other["lacking"]:
                assert other["needed_bytes"] > other["free_bytes"]


def test_the_difference_to_another_plan_adds_up_and_is_that_of_real_plans():
    """Options and balance add up to the difference of the slowest ranks."""
    seen = explained(CASES[3]).document
    there = seen["against"]
    problem, plan = planned(*CASES[3])
    theirs = planned(*CASES[3][:2], "certified")[1]
    ranks = problem.topology.world_size
    assert there["slowest_ms"] == pytest.approx(load_of_plan(theirs.options, ranks).rating)
    by_tables = sum(table["mean_ms"] for table in there["tables"])
    assert by_tables == pytest.approx(there["by_options_ms"])
    slower = there["by_options_ms"] + there["by_balance_ms"]
    assert slower == pytest.approx(seen["slowest_ms"] - there["slowest_ms"])
    assert there["other_options"] + there["other_ranks"] == len(there["tables"]) > 0
    options = {option.name: option for option in theirs.options}
    for table in there["tables"]:
        mixed = [options[o.name] if o.name == table["table"] else o for o in plan.options]
        assert table["alone_ms"] == pytest.approx(load_of_plan(mixed, ranks).rating)


def test_a_variant_that_decides_the_same_differs_in_nothing():
    """One sentence says so."""
    problem, plan = planned(*CASES[0])
    same = FAMILY.find("compiled").prepared(problem).run()
    seen = explain(problem, plan, Question(None, 1, "compiled", same))
    assert seen.document["against"]["tables"] == []
    assert "compiled decides the same." in seen.sentences


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_later_arguments_prove_no_less_and_the_first_that_proves_the_bound_binds(seed):
    """This goes for random problems that have a plan."""
    case = random_case(Random(seed), towers=False)
    space, devices = search_space(case.options), devices_of(case.topology)
    assume(not len(presolved(candidates(space, devices)).without_options))
    why = reasons(space, devices)
    proven, bound = why.proven, list(why.proven.values())[-1]
    assert max(proven["table"], proven["work"]) <= proven["shards"] * (1 + 1e-9)
    assert proven["shards"] <= proven["memory"] * (1 + 1e-9) + 1e-12
    names = list(proven)
    assert all(proven[name] < bound for name in names[: names.index(why.binding)])
    assert proven[why.binding] == pytest.approx(bound)


@pytest.mark.parametrize(
    ("workload", "gpus", "binding"),
    [
        ("synthetic[tables=1,seed=5]", 8, "table"),
        ("synthetic[tables=8,seed=7]", 1, "work"),
        ("dlrm-856[tables=40,seed=1]", 8, "shards"),
        ("synthetic[tables=6,seed=3,memory=mixed]", 8, "ranks"),
    ],
)
def test_what_binds(workload, gpus, binding):
    """A table, all work, its shards or the memory of ranks can bind."""
    if binding == "ranks":
        pytest.importorskip("ortools")
    assert reasons(*arrays(built(workload, gpus=gpus))).binding == binding


@of_cases
def test_a_single_table_has_every_enumerated_option(case):
    """The sentence names a better option if there is one."""
    problem, plan = planned(*case)
    space, _ = arrays(problem)
    for here in plan.options:
        made = explain_table(problem, plan, Question(table=here.name))
        kinds = {(o.sharding_type, o.compute_kernel) for o in space.options if o.fqn == here.fqn}
        now, *others = made.document["alternatives"]
        assert now["slowest_rank_ms"] == quality(problem, plan)["max_rank_ms"]
        assert {(o["sharding_type"], o["compute_kernel"]) for o in (now, *others)} == kinds
        assert "data_parallel" in made.document["left_out"]
        least = min(other["slowest_rank_ms"] for other in (now, *others) if not other["why_not"])
        helps = least < now["slowest_rank_ms"] * (1 - 1e-9)
        assert helps == ("With this table as" in made.sentences[0])


def test_a_table_that_does_not_exist_is_refused():
    """The error suggests a name."""
    with pytest.raises(UsageError, match="Unknown table 'tabel_0'; did you mean table_0"):
        explain_table(*planned(*CASES[0]), Question(table="tabel_0"))


@given(problems(), st.data())
def test_a_placement_is_possible_and_the_best_of_equal_shards(problem, data):
    """All placements are tried."""
    space, on = problem
    option = data.draw(st.integers(0, len(space.options) - 1))
    perf = data.draw(st.lists(st.integers(0, 8), min_size=on.ranks, max_size=on.ranks))
    used = np.full((on.ranks, 3), data.draw(st.integers(0, 2)))
    others = Load(np.array(perf) / 10, used.copy())
    possible = []
    for ranks in ways(space, on, option):
        own = load(space, on, option, ranks)
        there = own[:, 4] > 0
        if ((used + own[:, 1:4])[there] <= on.storage[there]).all():
            possible.append(Load(others.perf + own[:, 0], used + own[:, 1:4].astype(int)))
    are_equal = len(np.unique(space.estimates_of(option))) == 1
    now = placed(space, on, parts_of(space, on), others, option)
    if not isinstance(now, Load):
        assert now["why_not"]
        assert not possible or not are_equal
        return
    assert any(
        (now.used == other.used).all() and now.perf == pytest.approx(other.perf)
        for other in possible
    )
    if are_equal:
        assert now.rating == pytest.approx(min(other.rating for other in possible))

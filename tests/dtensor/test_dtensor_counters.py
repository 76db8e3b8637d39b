"""Counts of a call repeat exactly and show the savings of each step."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from small_world import EVERYWHERE, FEW_ROUNDS, checked, problem_of

from planners.dtensor.workloads import OPS

pytestmark = pytest.mark.usefixtures("few_rounds")

HOST = "dgx_a100_80gb:8"
ORDINARY = ("mm", "addmm", "mul", "relu", "t")


@pytest.fixture(scope="module")
def counted():
    """Return the counters of a variant on a workload."""
    known: dict[tuple[str, str], Mapping[str, int]] = {}

    def counted(variant: str, workload: str) -> Mapping[str, int]:
        if (variant, workload) not in known:
            problem = problem_of(f"{workload}/{HOST}")
            program = replace(problem.program, counts_kept=False)  # which takes fifty steps more
            known[variant, workload] = checked(variant, replace(problem, program=program)).counters
        return known[variant, workload]

    return counted


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("variant", EVERYWHERE)
def test_every_op_is_looked_up_once_and_is_a_hit_or_a_miss(variant, op, counted):
    found = counted(variant, f"ops[op={op}]")
    assert found["lookups"] == found["hits"] + found["misses"] == FEW_ROUNDS
    is_forgotten = variant == "uncached" or (variant == "before" and op.startswith("view"))
    assert found["misses"] == (FEW_ROUNDS if is_forgotten else 0)


@pytest.mark.parametrize("op", [*ORDINARY, "add-scalar"])
def test_eleven_passes_over_the_arguments_become_six_and_none(op, counted):
    passes = {
        variant: counted(variant, f"ops[op={op}]")["pytree_passes"]
        for variant in ("before", "after", "no-pytree", "upstream", "interned")
    }
    assert passes == {
        "before": 11 * FEW_ROUNDS,
        "after": 6 * FEW_ROUNDS,
        "no-pytree": 0,
        "upstream": 0,
        "interned": 0,
    }


def test_a_view_of_a_sharded_tensor_takes_one_pass_more_for_its_own_size(counted):
    assert counted("after", "ops[op=view]")["pytree_passes"] == 6 * FEW_ROUNDS
    assert counted("after", "ops[op=view-sharded]")["pytree_passes"] == 7 * FEW_ROUNDS


def test_before_keeps_a_view_again_in_each_call_as_it_never_finds_it_again(counted):
    # Two calls warm, one is counted.
    assert counted("before", "ops[op=view]")["cache_entries"] == 3 * FEW_ROUNDS
    assert counted("after", "ops[op=view]")["cache_entries"] == 1


def test_torch_builds_a_spec_for_the_number_of_every_op_and_interned_does_not(counted):
    number = "ops[op=add-scalar]"
    assert counted("upstream", number)["specs_built"] == FEW_ROUNDS
    assert counted("interned", number)["specs_built"] == 0


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("variant", ["interned", "shape-class"])
def test_interned_builds_no_spec_and_no_strategy_on_a_hit(variant, op, counted):
    found = counted(variant, f"ops[op={op}]")
    assert found["specs_built"] == found["strategies_expanded"] == found["pytree_passes"] == 0


def test_a_warm_step_of_an_mlp_finds_all_decisions(counted):
    for variant in ("after", "no-pytree", "upstream", "interned", "shape-class"):
        found = counted(variant, "mlp")
        assert (found["lookups"], found["misses"]) == (24, 0), variant
    assert counted("before", "mlp")["misses"] == 2  # its two views of sharded tensors


def test_a_size_that_was_not_seen_before_is_missed_by_all_but_the_shape_class(counted):
    # The two products are of equal shapes and placements, so that the second one is known.
    for variant in ("before", "after", "no-pytree", "upstream", "interned", "exact-miss"):
        assert counted(variant, "dynamic")["misses"] == 2, variant
    found = counted("shape-class", "dynamic")
    assert (found["lookups"], found["hits"], found["misses"]) == (3, 3, 0)
    assert found["strategies_expanded"] == found["specs_built"] == 0


def test_a_miss_puts_all_strategies_together_unless_it_is_searched(counted):
    misses = "miss[dims=2]"
    exhaustive = counted("upstream", misses)
    assert exhaustive["strategies_expanded"] > 20 * len(OPS)
    for variant in ("dijkstra", "exact-miss"):
        assert counted(variant, misses)["strategies_expanded"] == len(OPS)
        assert counted(variant, misses)["misses"] == exhaustive["misses"] == len(OPS)


@pytest.mark.parametrize("variant", EVERYWHERE)
def test_counters_repeat_exactly(variant):
    problem = problem_of(f"ops[op=mm+view-sharded+add-scalar]/{HOST}")
    first, second = (dict(checked(variant, problem).counters) for _ in range(2))
    for counters in (first, second):
        del counters["cache_bytes"]  # hashes are in it, which take 28 or 32 bytes
    assert first == second


def test_kept_decisions_have_a_size(counted):
    for variant in EVERYWHERE:
        found = counted(variant, "ops[op=mm]")
        assert found["cache_entries"] >= 1, variant
        assert found["cache_bytes"] > 500 * found["cache_entries"], variant

"""The workload `mixture`: problems of many kinds, determined by the seed, for any memory size."""

import pytest

from harness.contract import UsageError, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.problem import build
from planners.embedding.quality import arrays
from planners.embedding.workloads.catalog import DDR, HBM, load_tables
from planners.embedding.workloads.mixture import mixture


def drawn(seed):
    return mixture(WorkloadSpec("mixture", {"seed": str(seed)}))


def tables_of(text):
    return load_tables(WorkloadSpec.parse(text))


def test_a_seed_draws_the_same_tables_and_rules_every_time():
    assert tables_of("mixture[seed=3]") == tables_of("mixture[seed=3]")
    assert tables_of("mixture[seed=3]") != tables_of("mixture[seed=4]")
    assert drawn(3) == drawn(3)


def test_seeds_draw_all_kinds():
    kinds = [drawn(seed) for seed in range(200)]
    assert {len(each.kernels) for each in kinds} == {1, 2, 4}
    assert len({each.sharding_types for each in kinds}) == 4
    assert {each.hbm for each in kinds} == set(HBM)
    assert {each.ddr for each in kinds} == set(DDR)
    counts = {len(tables_of(f"mixture[seed={seed}]")) for seed in range(200)}
    assert (min(counts), max(counts)) == (8, 30)


def test_parameters_say_what_the_seed_would_draw():
    spec = WorkloadSpec.parse("mixture[seed=1,tables=40,kernels=cached,hbm=0.45,ddr=0.7]")
    assert len(load_tables(spec)) == 40
    rules = mixture(spec)
    assert (rules.hbm, rules.ddr) == (0.45, 0.7)
    assert rules.kernels == ("fused", "fused_uvm_caching")


def test_memory_is_in_parts_of_the_tables():
    problem = build(
        WorkloadSpec.parse("mixture[seed=5,hbm=0.9,ddr=0.3]"), find_topology("dgx_a100_80gb", 16)
    )
    held = sum(table.bytes for table in problem.tables)
    spare = 16 * drawn(5).spare
    assert sum(problem.usable_hbm) == pytest.approx(0.9 * held + spare, rel=1e-6)
    assert sum(problem.usable_ddr) == pytest.approx(0.3 * held, rel=1e-6)
    assert "HBM 0.9" in problem.memory


@pytest.mark.parametrize("seed", range(8))
def test_every_problem_has_options_of_the_kernels_and_types_that_it_allows(seed):
    problem = build(WorkloadSpec.parse(f"mixture[seed={seed}]"), find_topology("dgx_h100", 8))
    space, placed_on = arrays(problem)
    assert space.tables == len(problem.tables)
    assert {option.compute_kernel for option in space.options} <= set(drawn(seed).kernels)
    assert {option.sharding_type for option in space.options} <= set(drawn(seed).sharding_types)
    assert placed_on.storage[0, 0] == problem.usable_hbm[0]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("hbm=0", "must be a number above 0"),
        ("ddr=nan", "must be a number above 0"),
        ("kernels=some", "one of all, cached, fused"),
        ("tables=0", "whole number from 1"),
        ("memory=tight", "memory"),
    ],
)
def test_what_is_wrong_is_named(parameters, said):
    with pytest.raises(UsageError, match=said):
        tables_of(f"mixture[{parameters}]")

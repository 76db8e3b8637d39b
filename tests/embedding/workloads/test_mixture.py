"""The workload `mixture`: problems of many kinds, determined by the seed, for any memory size."""

import pytest
from built_problem import problem

from harness.contract import WorkloadSpec
from planners.embedding.quality import arrays
from planners.embedding.workloads.catalog import DDR, HBM, load_tables
from planners.embedding.workloads.mixture import Mixture, mixture


def drawn(seed: int) -> Mixture:
    return mixture(WorkloadSpec("mixture", {"seed": str(seed)}))


def test_seeds_draw_all_kinds_and_draw_them_again():
    kinds = [drawn(seed) for seed in range(200)]
    assert {len(kind.kernels) for kind in kinds} == {1, 2, 4}
    assert len({kind.sharding_types for kind in kinds}) == 4
    assert {kind.hbm for kind in kinds} == set(HBM)
    assert {kind.ddr for kind in kinds} == set(DDR)
    assert kinds[3] == drawn(3)
    three, again, four = (load_tables(WorkloadSpec("mixture", {"seed": s})) for s in "334")
    assert three == again != four


def test_parameters_say_what_the_seed_would_draw():
    spec = WorkloadSpec.parse("mixture[seed=1,tables=40,kernels=cached,hbm=0.45,ddr=0.7]")
    assert len(load_tables(spec)) == 40
    rules = mixture(spec)
    assert (rules.hbm, rules.ddr) == (0.45, 0.7)
    assert rules.kernels == ("fused", "fused_uvm_caching")


@pytest.mark.parametrize("seed", range(8))
def test_a_problem_has_the_memory_the_kernels_and_the_types_that_it_allows(seed: int):
    built, rules = problem(f"mixture[seed={seed}]", gpus=8), drawn(seed)
    size = sum(table.bytes for table in built.tables)
    assert sum(built.usable_hbm) == pytest.approx(rules.hbm * size + 8 * rules.spare, rel=1e-6)
    assert sum(built.usable_ddr) == pytest.approx(rules.ddr * size, rel=1e-6)
    space, devices = arrays(built)
    assert space.tables == len(built.tables)
    assert {option.compute_kernel for option in space.options} <= set(rules.kernels)
    assert {option.sharding_type for option in space.options} <= set(rules.sharding_types)
    assert devices.storage[0, 0] == built.usable_hbm[0]

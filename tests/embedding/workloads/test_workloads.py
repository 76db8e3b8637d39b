"""Workloads have their published tables, samples and sizes; wrong ones are refused."""

import hashlib
from dataclasses import replace
from pathlib import Path

import built_problem
import pytest
from hypothesis import given, settings, strategies as st

from harness.contract import UsageError, WorkloadSpec
from planners.embedding.quality import arrays
from planners.embedding.tables.files import Table
from planners.embedding.workloads.catalog import (
    DDR,
    HBM,
    label,
    load_tables,
    scaled,
    sized_tables,
)
from planners.embedding.workloads.mixture import Mixture, mixture


def load(text: str) -> tuple[Table, ...]:
    return load_tables(WorkloadSpec.parse(text))


def test_published_models_have_their_published_tables() -> None:
    """The numbers are those of the sources: models' READMEs, Meta's list of rows, MLPerf."""
    for model, tables, gib in (
        ("merlin-tiny", 55, 4.2),
        ("merlin-small", 107, 26.3),
        ("merlin-medium", 311, 206.2),
        ("merlin-large", 612, 773.8),
        ("merlin-jumbo", 1022, 3109.5),
        ("merlin-colossal", 2002, 22327.4),
    ):
        loaded = load(model)
        assert len(loaded) == tables
        assert sum(table.bytes for table in loaded) / 2**30 == pytest.approx(gib, abs=0.05)
    assert [table.pooling_factors for table in load("merlin-tiny")[2:4]] == [(1, 10), (1,)]
    ads = load("dlrm-856")
    assert (len(ads), sum(table.rows for table in ads)) == (587, 2_328_942_965 - 269)
    mean = sum(table.indices for table in ads) / len(ads)
    assert mean == pytest.approx(15.8, rel=0.15)
    mlperf, kaggle = load("dlrm-dcnv2"), load("criteo-kaggle")
    assert len(mlperf) == len(kaggle) == 26
    assert sum(table.indices for table in mlperf) == 214
    assert {(table.dim, table.pooling_factors) for table in kaggle} == {(16, (1.0,))}
    assert max(table.rows for table in kaggle) == 10_131_227


def test_what_is_drawn_is_the_same_on_every_machine() -> None:
    """Some drawn tables are written here."""
    drawn = [(table.name, table.dim, *table.pooling_factors) for table in load("dlrm-856")[:2]]
    assert drawn == [("table_0", 32, 2.0), ("table_2", 64, 100.0)]
    assert load("synthetic[tables=2]") == (
        Table("table_0", 16_676_667, 128, (1.0,)),
        Table("table_1", 19_705, 256, (10.0,)),
    )
    assert load("synthetic") == load("synthetic[tables=100,seed=0]") != load("synthetic[seed=1]")


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), fewer=st.integers(1, 30), more=st.integers(0, 30))
def test_more_synthetic_tables_extend_fewer(seed: int, fewer: int, more: int) -> None:
    """The first tables stay the same."""
    tables = load(f"synthetic[tables={fewer + more},seed={seed}]")
    assert len(tables) == fewer + more
    assert tables[:fewer] == load(f"synthetic[tables={fewer},seed={seed}]")


@settings(deadline=None)
@given(count=st.integers(1, 55), seed=st.integers(0, 1000))
def test_a_sample_is_distinct_tables_in_their_order(count: int, seed: int) -> None:
    """It has as many tables as asked for."""
    everything = load("merlin-tiny")
    positions = [everything.index(t) for t in load(f"merlin-tiny[tables={count},seed={seed}]")]
    assert positions == sorted(set(positions))
    assert len(positions) == count


def test_a_file_is_a_workload_that_is_labelled_by_its_content(tmp_path: Path) -> None:
    """A named workload keeps its name."""
    file = tmp_path / "mine.csv"
    file.write_text("rows,dim,pooling_factor\n10,8,1\n20,8,1\n30,8,1\n")
    assert [table.rows for table in load(str(file))] == [10, 20, 30]
    assert len(load(f"{file}[tables=2,seed=2]")) == 2
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    assert str(label(WorkloadSpec(str(file), {"tables": "2"}))) == f"mine.csv#{digest}[tables=2]"
    named = WorkloadSpec.parse("dlrm-856[tables=3,memory=tight]")
    assert label(named) is named


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("synthetic[memory=huge]", "one of mixed, roomy, tight"),
        ("synthetic[tables=0]", "from 1 to 100,000"),
        ("synthetic[seed=-1]", "'seed'"),
        ("merlin-tiny[tables=56]", "from 1 to 55, the tables that it has"),
        ("merlin-tiny[seed=3]", "'seed' must come with 'tables'"),
        ("merlin-tiny[table=3]", "did you mean tables?"),
        ("dlrm-856[weights=cpu,memory=tight]", "weights"),
        ("dlrm-856[mib=3]", "'mib' must come with"),
        ("criteo-kagle", "did you mean criteo-kaggle?"),
        ("nothing-alike-it", "known are: FILE.csv, FILE.json"),
        ("none.csv", "none.csv cannot be read: "),
        ("mixture[hbm=0]", "must be a number above 0"),
        ("mixture[ddr=nan]", "must be a number above 0"),
        ("mixture[kernels=some]", "one of all, cached, fused"),
        ("mixture[memory=tight]", "memory"),
    ],
)
def test_what_is_wrong_is_named(workload: str, said: str) -> None:
    """Loading and labelling refuse a workload alike."""
    for use in (load_tables, label):
        with pytest.raises(UsageError) as caught:
            use(WorkloadSpec.parse(workload))
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "size"),
    [("weights=cpu,mib=30", 30 * 2**20), ("memory=roomy", 4e10), ("memory=tight", 2e11)],
)
def test_tables_have_the_bytes_that_are_asked_for(parameters: str, size: float) -> None:
    """The size is in bytes, or relative to the usable HBM."""
    tables = sized_tables(WorkloadSpec.parse(f"dlrm-856[{parameters}]"), usable_hbm=10**11)
    assert sum(table.bytes for table in tables) == pytest.approx(size, rel=0.1)


any_tables = st.lists(
    st.builds(
        Table,
        name=st.just("t"),
        rows=st.one_of(st.integers(1, 10), st.integers(1, 2 * 10**9)),
        dim=st.sampled_from([4, 32, 256]),
        pooling_factors=st.just((1.0,)),
        dtype=st.sampled_from(["fp32", "bf16"]),
    ),
    max_size=8,
).map(tuple)


@settings(deadline=None)
@given(tables=any_tables, goal=st.integers(0, 10**13))
def test_scaling_meets_the_goal_and_changes_row_counts_alone(tables, goal: int) -> None:
    """The total is at most half a row per table off; more rows stay more, and 1 row stays 1."""
    result = scaled(tables, goal)
    row_each = sum(table.row_bytes for table in tables)
    total = sum(table.bytes for table in result)
    if all(table.rows == 1 for table in tables):
        assert result == tables
    else:
        assert total == row_each if goal <= row_each else abs(total - goal) <= row_each / 2
    pairs = sorted((before.rows, after.rows) for before, after in zip(tables, result, strict=True))
    assert [after for _, after in pairs] == sorted(after for _, after in pairs)
    for before, after in zip(tables, result, strict=True):
        assert after == replace(before, rows=after.rows)
        assert after.rows == 1 or before.rows > 1


def drawn(seed: int) -> Mixture:
    return mixture(WorkloadSpec("mixture", {"seed": str(seed)}))


def test_seeds_of_a_mixture_draw_all_kinds_and_parameters_replace_what_they_draw() -> None:
    """Kernels, sharding types and memory are drawn."""
    kinds = [drawn(seed) for seed in range(200)]
    assert {len(kind.kernels) for kind in kinds} == {1, 2, 4}
    assert len({kind.sharding_types for kind in kinds}) == 4
    assert {kind.hbm for kind in kinds} == set(HBM)
    assert {kind.ddr for kind in kinds} == set(DDR)
    spec = WorkloadSpec.parse("mixture[seed=1,tables=40,kernels=cached,hbm=0.45,ddr=0.7]")
    given = mixture(spec)
    assert len(load_tables(spec)) == 40
    assert (given.hbm, given.ddr, *given.kernels) == (0.45, 0.7, "fused", "fused_uvm_caching")


@pytest.mark.parametrize("seed", range(4))
def test_a_mixture_has_the_memory_the_kernels_and_the_types_that_it_allows(seed: int) -> None:
    """The problem is one for eight GPUs."""
    problem, kind = built_problem.problem(f"mixture[seed={seed}]", gpus=8), drawn(seed)
    size = sum(table.bytes for table in problem.tables)
    assert sum(problem.usable_hbm) == pytest.approx(kind.hbm * size + 8 * kind.spare, rel=1e-6)
    assert sum(problem.usable_ddr) == pytest.approx(kind.ddr * size, rel=1e-6)
    space, _ = arrays(problem)
    assert {option.compute_kernel for option in space.options} <= set(kind.kernels)
    assert {option.sharding_type for option in space.options} <= set(kind.sharding_types)

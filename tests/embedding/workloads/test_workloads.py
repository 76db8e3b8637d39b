import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from loading import NAMES, load

from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from planners.embedding.tables.files import Table
from planners.embedding.workloads.catalog import (
    assigned,
    label,
    list_workloads,
    load_tables,
    synthetic,
)


def error_of(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(text)
    return str(caught.value)


def gib(tables: tuple[Table, ...]) -> float:
    return sum(table.bytes for table in tables) / 2**30


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text("rows,dim,pooling_factor\n" + "".join(f"{n},8,1\n" for n in (10, 20, 30, 40)))
    return path


# Tables and totals as the models' README states them.
@pytest.mark.parametrize(
    ("model", "tables", "total_gib"),
    [
        ("tiny", 55, 4.2),
        ("small", 107, 26.3),
        ("medium", 311, 206.2),
        ("large", 612, 773.8),
        ("jumbo", 1022, 3109.5),
        ("colossal", 2002, 22327.4),
    ],
)
def test_merlin_models_have_their_published_size(model, tables, total_gib) -> None:
    loaded = load(f"merlin-{model}")
    assert len(loaded) == tables
    assert gib(loaded) == pytest.approx(total_gib, abs=0.05)


def test_merlin_tables_may_serve_several_features() -> None:
    tables = load("merlin-tiny")
    assert [table.pooling_factors for table in tables[:4]] == [(1, 10), (1, 10), (1, 10), (1,)]
    assert (tables[0].rows, tables[0].dim) == (10_000, 8)


def test_dlrm_856_has_the_tables_that_are_not_empty() -> None:
    tables = load("dlrm-856")
    assert len(tables) == 587
    assert tables[0] == Table("table_0", 8_015_999, tables[0].dim, tables[0].pooling_factors)
    assert tables[1].name == "table_2"
    assert min(table.rows for table in tables) > 1
    assert sum(table.rows for table in tables) == 2_328_942_965 - 269


def test_dlrm_856_is_assigned_attributes_near_the_published_mean() -> None:
    tables = load("dlrm-856")
    assert {table.dim for table in tables} == {32, 64, 128, 256}
    assert {factor for table in tables for factor in table.pooling_factors} == {
        1,
        2,
        5,
        10,
        20,
        50,
        100,
    }
    mean = sum(table.pooling_factors[0] for table in tables) / len(tables)
    assert mean == pytest.approx(15.8, rel=0.15)


def test_dlrm_856_assigns_the_same_attributes_on_every_machine() -> None:
    assert [(table.name, table.dim, *table.pooling_factors) for table in load("dlrm-856")[:3]] == [
        ("table_0", 32, 2.0),
        ("table_2", 64, 100.0),
        ("table_3", 64, 20.0),
    ]


def test_dcnv2_has_the_multi_hot_sizes_of_mlperf() -> None:
    tables = load("dlrm-dcnv2")
    assert len(tables) == 26
    assert sum(table.pooling_factors[0] for table in tables) == 214
    assert {table.dim for table in tables} == {128}
    assert tables[0] == Table("table_0", 40_000_000, 128, (3.0,), "fp32")


def test_criteo_kaggle_is_one_hot() -> None:
    tables = load("criteo-kaggle")
    assert len(tables) == 26
    assert {(table.dim, *table.pooling_factors) for table in tables} == {(16, 1.0)}
    assert max(table.rows for table in tables) == 10_131_227


@pytest.mark.parametrize("name", NAMES)
def test_every_listed_workload_loads_with_unique_names(name: str) -> None:
    tables = load(name)
    assert len({table.name for table in tables}) == len(tables)
    assert all(table.rows >= 1 and table.dim % 4 == 0 for table in tables)
    assert all(factor > 0 for table in tables for factor in table.pooling_factors)


def test_the_list_says_what_each_workload_is_and_where_it_is_from() -> None:
    listed = {workload.name: workload for workload in list_workloads()}
    assert "1022 tables, 3,109.5 GiB" in listed["merlin-jumbo"].summary
    assert listed["merlin-jumbo"].source.startswith("NVIDIA-Merlin/distributed-embeddings ")
    assert listed["dlrm-856"].source.startswith("hpcaitech/CachedEmbedding")
    assert "mlcommons/training recommendation_v2" in listed["dlrm-dcnv2"].source


def test_assigned_attributes_are_labelled() -> None:
    summaries = {workload.name: workload.summary for workload in list_workloads()}
    assert assigned("dlrm-856") == "dimension, pooling factor"
    assert summaries["dlrm-856"].endswith("; assigned, not published: dimension, pooling factor")
    assert assigned("synthetic") == "rows, dimension, pooling factor"
    assert "made up" in summaries["synthetic"]
    assert [name for name in NAMES if assigned(name)] == ["dlrm-856", "synthetic", "mixture"]
    assert assigned("mine.csv") == ""


def test_synthetic_makes_100_tables_of_seed_0_unless_told_otherwise() -> None:
    assert load("synthetic") == load("synthetic[tables=100,seed=0]")
    assert len(load("synthetic")) == 100
    assert load("synthetic[seed=1]") != load("synthetic")


def test_synthetic_makes_the_same_tables_on_every_machine() -> None:
    assert load("synthetic[tables=2]") == (
        Table("table_0", 16_676_667, 128, (1.0,)),
        Table("table_1", 19_705, 256, (10.0,)),
    )


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), fewer=st.integers(1, 30), more=st.integers(0, 30))
def test_more_synthetic_tables_extend_fewer(seed: int, fewer: int, more: int) -> None:
    tables = synthetic(fewer + more, seed)
    assert len(tables) == fewer + more
    assert tables[:fewer] == synthetic(fewer, seed)


def test_synthetic_tables_are_of_ads_scale() -> None:
    tables = synthetic(2000, seed=3)
    assert all(10**3 <= table.rows <= 10**8 for table in tables)
    # The median of 10^U(3, 8) is 10^5.5, about 316,000.
    assert 250_000 < sorted(table.rows for table in tables)[1000] < 400_000
    assert {table.dim for table in tables} == {16, 32, 64, 128, 256}
    assert {table.pooling_factors for table in tables} == {
        (1,),
        (2,),
        (5,),
        (10,),
        (20,),
        (50,),
        (100,),
    }


@settings(deadline=None)
@given(count=st.integers(1, 55), seed=st.integers(0, 1000))
def test_a_sample_is_distinct_tables_in_their_order(count: int, seed: int) -> None:
    everything = load("merlin-tiny")
    sample = load(f"merlin-tiny[tables={count},seed={seed}]")
    positions = [everything.index(table) for table in sample]
    assert len(sample) == count
    assert positions == sorted(set(positions))


def test_a_sample_depends_on_the_seed_alone() -> None:
    assert load("dlrm-856[tables=20]") == load("dlrm-856[tables=20,seed=0]")
    assert load("dlrm-856[tables=20,seed=1]") != load("dlrm-856[tables=20,seed=0]")


def test_a_file_is_a_workload(file: Path) -> None:
    assert [table.rows for table in load(str(file))] == [10, 20, 30, 40]
    assert len(load(f"{file}[tables=3,seed=2]")) == 3


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("synthetic[memory=huge]", "one of mixed, roomy, tight"),
        ("synthetic[tables=0]", "from 1 to 100,000"),
        ("synthetic[seed=-1]", "'seed'"),
        ("merlin-tiny[tables=3,seed=x]", "'seed'"),
        ("merlin-tiny[tables=56]", "from 1 to 55, the tables that it has"),
        ("merlin-tiny[tables=0]", "'tables'"),
        ("merlin-tiny[seed=3]", "'seed' must come with 'tables'"),
        ("merlin-tiny[table=3]", "did you mean tables?"),
        ("criteo-kagle", "did you mean criteo-kaggle?"),
    ],
)
def test_what_is_wrong_is_named(workload: str, said: str) -> None:
    assert said in error_of(workload)


def test_an_unknown_name_is_answered_with_all_that_is_allowed() -> None:
    said = error_of("nothing-alike-it[tables=3]")
    assert said.startswith("Unknown workload 'nothing-alike-it'; known are: FILE.csv, FILE.json")
    assert all(name in said for name in NAMES)


@pytest.mark.parametrize("use", [load_tables, label])
def test_a_missing_file_is_an_error_of_that_file(use) -> None:
    with pytest.raises(UsageError, match=r"^none\.csv cannot be read: "):
        use(WorkloadSpec("none.csv"))


def test_a_file_is_labelled_by_its_content(file: Path) -> None:
    spec = WorkloadSpec(str(file), {"tables": "3"})
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    assert str(label(spec)) == f"mine.csv#{digest}[tables=3]"
    moved = file.rename(file.with_name("other.csv"))
    assert label(WorkloadSpec(str(moved))).name == f"other.csv#{digest}"
    moved.write_text(moved.read_text() + "50,8,1\n")
    assert label(WorkloadSpec(str(moved))).name != f"other.csv#{digest}"


def test_a_named_workload_is_its_own_label() -> None:
    spec = WorkloadSpec.parse("dlrm-856[tables=3,memory=tight]")
    assert label(spec) is spec

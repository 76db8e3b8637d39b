"""Tables are scaled to fit a memory setting, such as `tight`."""

import pytest
from hypothesis import given, settings, strategies as st
from loading import NAMES, load

from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from planners.embedding.tables.files import Table
from planners.embedding.workloads.catalog import MEMORY, scaled, sized_tables, sizes_of


def test_memory_changes_no_table_here() -> None:
    assert load("criteo-kaggle[memory=tight]") == load("criteo-kaggle")
    assert load("synthetic[memory=mixed]") == load("synthetic")


@pytest.mark.parametrize("setting", MEMORY)
def test_memory_setting_is_one_of_three(setting: str) -> None:
    assert sizes_of(WorkloadSpec.parse(f"dlrm-856[memory={setting}]")).memory == setting


def test_memory_setting_may_be_left_out() -> None:
    assert sizes_of(WorkloadSpec("dlrm-856")).memory is None


def test_real_weights_fit_into_memory_and_exclude_a_memory_setting() -> None:
    tables = sized_tables(WorkloadSpec.parse("dlrm-856[weights=cpu,mib=30]"), 0)
    assert sum(table.bytes for table in tables) == pytest.approx(30 * 2**20, rel=0.1)
    with pytest.raises(UsageError, match="weights"):
        sizes_of(WorkloadSpec.parse("dlrm-856[weights=cpu,memory=tight]"))


any_tables = st.lists(
    st.builds(
        Table,
        name=st.just("t"),
        rows=st.one_of(st.integers(1, 10), st.integers(1, 2 * 10**9)),
        dim=st.sampled_from([4, 32, 256]),
        pooling_factors=st.just((1.0,)),
        dtype=st.sampled_from(["fp32", "bf16"]),
    ),
    min_size=1,
    max_size=8,
).map(tuple)


@settings(deadline=None)
@given(tables=any_tables, goal=st.integers(0, 10**13))
def test_scaling_misses_the_goal_by_at_most_half_a_row_per_table(tables, goal: int) -> None:
    result = scaled(tables, goal)
    one_row_each = sum(table.row_bytes for table in tables)
    total = sum(table.bytes for table in result)
    if all(table.rows == 1 for table in tables):
        assert result == tables
    elif goal <= one_row_each:
        assert total == one_row_each
    else:
        assert abs(total - goal) <= one_row_each / 2


@settings(deadline=None)
@given(tables=any_tables, goal=st.integers(0, 10**13))
def test_scaling_changes_nothing_but_row_counts_and_keeps_their_order(tables, goal: int) -> None:
    result = scaled(tables, goal)
    pairs = sorted((before.rows, after.rows) for before, after in zip(tables, result, strict=True))
    assert [after for _, after in pairs] == sorted(after for _, after in pairs)
    for before, after in zip(tables, result, strict=True):
        assert after.rows >= 1
        assert after.rows == 1 or before.rows > 1
        assert (after.dim, after.dtype, after.pooling_factors) == (
            before.dim,
            before.dtype,
            before.pooling_factors,
        )


@settings(deadline=None)
@given(tables=any_tables, goal=st.integers(0, 10**13))
def test_tables_of_equal_rows_keep_equal_rows(tables, goal: int) -> None:
    result = scaled(tables, goal)
    assert len(set(zip(tables, result, strict=True))) == len(set(tables))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setting", MEMORY)
def test_every_workload_meets_its_memory_setting(name: str, setting: str) -> None:
    goal = MEMORY[setting] * 8 * 80 * 2**30
    assert sum(table.bytes for table in scaled(load(name), goal)) == pytest.approx(goal, rel=1e-3)


def test_no_tables_are_no_tables_when_scaled() -> None:
    assert scaled((), 10**9) == ()

"""`shardbench workload`: command lines, output, written files, and the family of a workload."""

import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import toy_registries
from hypothesis import given, strategies as st

from harness.contract import Column
from harness.contract.registry import Registry
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from harness.topologies.lookup import find_topology
from planners.embedding.problem import build
from planners.embedding.tables.files import read_tables
from planners.embedding.workloads.catalog import load_tables
from shardbench.commands.workload import distribution
from shardbench.problems import able_family

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ON_MACHINES = ["-t", "dgx_h100", "-n", "16"]


@pytest.fixture
def workload(shardbench):
    return partial(shardbench, "workload")


def test_tables_are_shown_with_summary_distributions_and_the_largest(workload):
    """The numbers are those of the workload."""
    code, out, _ = workload("show", "dlrm-856[tables=60,seed=1]", "--top", "3")
    assert code == 0
    tables = load_tables(WorkloadSpec.parse("dlrm-856[tables=60,seed=1]"))
    assert "60 tables for 60 features, 233,456,527 rows, 90.11 GiB" in out
    assert "Assigned here, not published: dimension, pooling factor." in out
    assert "3 of 60 tables, by bytes" in out
    largest = sorted(tables, key=lambda table: -table.bytes)[:3]
    assert re.findall(r"^(table_\d+) ", out, re.MULTILINE) == [table.name for table in largest]
    for title in ("rows", "dim (elements)", "pooling (indices a sample)", "bytes"):
        assert re.search(rf"(?m)(^| ){re.escape(title)}\s", out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resnet50"], "2,658 distinct conversions, asked for 39,737 times"),
        (["transformer", *ON_MACHINES], "4 layers, 189 ops on 2 x 8 ranks"),
        (["mlp", "-t", "dgx_h100", "-n", "8"], "24 ops a call on a mesh of 8"),
        (["synthetic[tables=5,memory=tight]", *ON_MACHINES], "5 tables"),
    ],
)
def test_every_family_shows_what_its_workloads_hold(workload, arguments, said):
    """Tables, conversions, layers, ops."""
    code, out, err = workload("show", *arguments)
    assert (code, err) == (0, "")
    assert said in out


def test_the_file_that_is_written_is_a_workload_itself(workload):
    """A CSV file of all parts can be read again."""
    code, _, err = workload("show", "merlin-tiny", "--out", "a.csv")
    assert code == 0
    assert err.strip().endswith("Wrote a.csv")
    assert read_tables("a.csv") == load_tables(WorkloadSpec("merlin-tiny"))
    Path("b.csv").write_text(
        "name,rows,dim,pooling_factor,dtype,lookup\n"
        "a,9,4,1.5,fp16,weighted\nb,9,4,2|3,bf16,sequence\nc,9,4,1,fp32,pooled\n"
    )
    workload("show", "b.csv", "--out", "c.csv")
    assert read_tables("c.csv") == read_tables("b.csv")


def test_a_captured_file_is_shown_by_the_family_that_it_is_from(workload, shardbench):
    """Without --family, the file tells it; other families refuse it."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner

    problem = build(WorkloadSpec("synthetic", {"tables": "3"}), find_topology("dgx_h100", 8))
    planner = EmbeddingShardingPlanner(
        topology=problem.topology, constraints=problem.constraints, debug=False
    )
    with capture("embedding", "mine.json"):
        planner.plan(problem.module, problem.sharders)
    code, out, err = workload("show", "mine.json")
    assert (code, err) == (0, "")
    rows = sum(table.rows for table in problem.tables)
    assert f"3 tables for 3 features, {rows:,} rows" in out
    code, _, err = shardbench("compare", "experts", "-w", "mine.json")
    assert code == 2
    assert "captured from family 'embedding'" in err


def test_an_import_writes_a_workload_and_says_how_to_go_on(workload):
    """Columns are matched, and what was changed is listed."""
    code, out, err = workload("import", str(EXAMPLES / "my_tables.csv"), "-o", "my tables.csv")
    assert code == 0
    assert "shardbench compare embedding -w 'my tables.csv' -t dgx_h100 -n 16" in err
    assert [table.name for table in read_tables("my tables.csv")] == [
        "user", "item", "query_words", "city", "age_band"
    ]  # fmt: skip
    assert "- dim was rounded up to a multiple of 4, which fbgemm's kernels need: age_band" in out
    code, out, _ = workload("show", "my tables.csv", "--sort", "rows", "--top", "2")
    assert code == 0
    assert re.findall(r"^(\w+) .*fp", out, re.MULTILINE) == ["item", "user"]


def test_a_failed_import_leaves_what_was_there(workload):
    """Neither the source nor an earlier file is written over."""
    Path("mine.csv").write_text("hash_size,dim\nmany,4\n")
    Path("out.csv").write_text("rows,dim,pooling_factor\n5,4,1\n")
    assert workload("import", "mine.csv", "-o", "out.csv")[0] == 2
    assert "is the source itself" in workload("import", "mine.csv", "-o", "./mine.csv")[2]
    assert Path("out.csv").read_text() == "rows,dim,pooling_factor\n5,4,1\n"


def family_of(workload: str) -> str:
    (family,) = toy_registries.bounded_registry().families

    def known(name: str):
        def label(spec: WorkloadSpec) -> WorkloadSpec:
            if not spec.name.startswith(name):
                raise UsageError(f"Unknown workload; did you mean {name}?")
            return spec

        return replace(family, name=name, label=label)

    families = Registry([known("cat"), known("cattle"), known("dog")])
    spec = WorkloadSpec.parse(workload)
    return able_family(families, "", "planning", "plan", spec).name


def test_a_workload_of_one_family_needs_no_name():
    """The only family that knows the workload is taken."""
    assert family_of("dog") == "dog"
    assert family_of("cat[size=3]") == "cat"


def test_one_of_two_families_or_of_none_is_refused():
    """Two families that know a workload need a name."""
    with pytest.raises(UsageError, match="Name a family"):
        family_of("cattle")
    with pytest.raises(UsageError, match="did you mean"):
        family_of("bird")


columns = st.sampled_from(
    [
        Column("weight", kind=kind, scale=scale)
        for kind in ("count", "number", "bytes")
        for scale in ("log", "linear")
    ]
)
numbers = st.one_of(
    st.integers(0, 10**15), st.integers(1, 300), st.floats(1e-3, 1e12), st.sampled_from([0, 1e-6])
)


@given(columns, st.lists(numbers, min_size=1, max_size=60))
def test_every_part_is_in_one_range_and_the_ranges_touch(column, values):
    """Ranges contain their values, but for those that are equal to a rounded edge."""
    bars = distribution(column, values)
    assert sum(parts for _, _, parts in bars) == len(values)
    if all(low == high for low, high, _ in bars):
        distinct = sorted(set(values))
        assert [(low, parts) for low, _, parts in bars] == [(v, values.count(v)) for v in distinct]
        return
    assert len(bars) < 80
    assert bars[0][0] <= min(values) * (1 + 1e-6)
    assert max(values) <= bars[-1][1] * (1 + 1e-6)
    assert all(first[1] == second[0] for first, second in pairwise(bars))
    for low, high, parts in bars:
        inside = sum(low * (1 + 1e-9) < value < high * (1 - 1e-9) for value in values)
        at_most = sum(low * (1 - 1e-6) <= value <= high * (1 + 1e-6) for value in values)
        assert inside <= parts <= at_most or (low, high, parts) in (bars[0], bars[-1])

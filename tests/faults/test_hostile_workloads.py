"""Workloads: malformed ids, parameters that would take for ever, and inconsistent files."""

import io
from functools import partial

import pandas as pd
import pytest
from hostile import NUMBERS, TEXTS, read_or_refused, refusal
from hypothesis import given, strategies as st

from harness.contract import count_calls
from harness.contract.registry import load_registry
from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.model.topology import MOST_GPUS
from harness.topologies.lookup import find_topology
from planners.embedding.tables.files import COLUMNS, MOST_TABLES, read_tables

FAMILIES = {family.name: family for family in load_registry().families}
KEYS = {
    "embedding": ("tables", "seed", "memory"),
    "dtensor": ("op", "dims", "cases", "seed", "impl", "params"),
    "dimspec": ("rank", "shape", "mesh", "dims", "calls", "conversions", "seed", "model"),
    "reshard": ("layers", "stage", "ops", "inserts", "seed"),
    "experts": ("layers", "windows", "seed", "redundant", "groups", "budget"),
}
WORKLOADS = [
    (family.name, workload.name)
    for family in FAMILIES.values()
    for workload in family.workloads()
    if not workload.name.startswith("merlin-") or workload.name == "merlin-tiny"
]


@given(st.text(max_size=30) | st.sampled_from(TEXTS) | st.text("ab[]=,@/:0 \n", max_size=20))
def test_an_id_is_read_or_refused(text):
    spec = read_or_refused(lambda: WorkloadSpec.parse(text))
    if spec is not None:
        assert WorkloadSpec.parse(str(spec)) == spec
    read_or_refused(lambda: ProblemId.parse(text))
    read_or_refused(lambda: CellId.parse(text))


def test_more_gpus_than_can_be_counted_are_refused():
    for parse in (ProblemId.parse, lambda text: CellId.parse(f"family/variant@{text}")):
        said = refusal(lambda parse=parse: parse(f"workload/topology:{'9' * 5000}"))
        assert "more GPUs than can be counted" in said


def test_what_is_quoted_of_a_long_text_is_its_beginning_and_its_end():
    said = refusal(lambda: WorkloadSpec.parse(f"[{'x' * 10**7}"))
    assert said.startswith("Workload '[xxxx")
    assert said.endswith(
        "xxxx' is malformed; write name or name[key=value,...], e.g. synthetic[tables=200,seed=7]."
    )


def test_a_terminal_is_given_no_control_characters():
    assert r"'\x1b[31m\n'" in str(UsageError("No '\x1b[31m\n' here."))


@pytest.mark.parametrize(("family", "workload"), WORKLOADS)
def test_a_parameter_is_possible_or_refused_after_little_work(family, workload):
    specs = [
        WorkloadSpec(workload, {key: value})
        for key in (*KEYS[family], "another", *TEXTS[:3])
        for value in NUMBERS
    ]

    def read_all() -> None:
        for spec in specs:
            read_or_refused(partial(FAMILIES[family].label, spec))

    _, calls = count_calls(read_all)
    assert sum(calls.values()) < 100_000 * len(specs)


@pytest.mark.parametrize(
    ("family", "workload"),
    [
        ("embedding", f"synthetic[tables={10**12}]"),
        ("dimspec", f"random[conversions={10**12}]"),
        ("dimspec", f"all-pairs[shape={10**12}]"),
        ("dimspec", f"all-pairs[mesh={10**12}]"),
        ("dtensor", f"optimizer[params={10**12}]"),
        ("dtensor", f"miss[cases={10**12}]"),
        ("reshard", f"transformer[layers={10**12}]"),
        ("reshard", f"micro[ops={10**12}]"),
        ("reshard", f"micro[inserts={10**12}]"),
        ("experts", f"kimi-k2[layers={10**12}]"),
        ("embedding", "synthetic[tables=٣]"),
        ("embedding", "synthetic[tables=1_000]"),
        ("embedding", "synthetic[tables=+5]"),
    ],
)
def test_an_astronomical_parameter_is_refused_before_anything_is_made(family, workload):
    said = refusal(lambda: FAMILIES[family].label(WorkloadSpec.parse(workload)))
    assert "must be " in said


@pytest.mark.parametrize(
    ("family", "workload"),
    [
        ("embedding", "synthetic[tables=10000,seed=99999999999]"),
        ("dimspec", "random[conversions=100000]"),
        ("dimspec", "all-pairs[shape=2147483648x8]"),
        ("dtensor", "optimizer[params=5000]"),
        ("dtensor", "miss[cases=5000]"),
        ("reshard", "transformer[layers=256]"),
        ("reshard", "micro[ops=100000,inserts=100000]"),
    ],
)
def test_what_a_person_may_want_is_allowed(family, workload):
    spec = WorkloadSpec.parse(workload)
    assert FAMILIES[family].label(spec) == spec


def test_no_topology_has_more_gpus_than_any_cluster():
    assert find_topology("dgx_h100", MOST_GPUS).gpus == MOST_GPUS
    said = refusal(lambda: find_topology("dgx_h100", MOST_GPUS * 2))
    assert f"{MOST_GPUS:,} GPUs" in said


TABLES = "name,rows,dim,pooling_factor,dtype\na,100,8,1|10,fp16\nb,1000,64,2.5,\n"


@given(
    content=st.binary(max_size=200) | st.text('rowsdimpl,_"\n\r0 \x00', max_size=60).map(str.encode)
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_any_bytes_are_tables_or_refused(folder, suffix, content):
    path = folder / f"any{suffix}"
    path.write_bytes(content)
    read_or_refused(lambda: read_tables(path), str(path))


@given(
    at=st.integers(0, len(TABLES)),
    length=st.integers(0, 8),
    put=st.sampled_from(
        [*TEXTS, *NUMBERS, '"', ",", "\n", "\r", "\x00", "\ufeff", '"' * 3, "x" * 2**18]
    ),
)
def test_changed_tables_are_read_or_refused(folder, at, length, put):
    path = folder / "changed.csv"
    text = TABLES[:at] + put + TABLES[at + length :]
    path.write_bytes(text.encode(errors="surrogatepass"))
    tables = read_or_refused(lambda: read_tables(path), str(path))
    for table in tables or ():
        assert 1 <= table.rows <= 10**12
        assert 4 <= table.dim <= 2**16
        assert all(0 < factor <= 10**6 for factor in table.pooling_factors)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_tables_with_other_line_ends_and_a_mark_are_the_same(folder, mark, ending):
    path = folder / "ends.csv"
    path.write_bytes((mark + TABLES.replace("\n", ending)).encode())
    assert [table.name for table in read_tables(path)] == ["a", "b"]


columns_of_parquet = st.sampled_from(
    [
        *(
            [1],
            [None],
            [1.5],
            [float("nan")],
            [float("inf")],
            ["x"],
            [True],
            [b"x"],
            [[1]],
            [{"a": 1}],
        ),
        *([-1], [2**62], [1e300], [pd.Timestamp(0)], [pd.Timedelta(1)], ["\x00"], ["\u202e" * 99]),
    ]
)


@given(
    columns=st.dictionaries(
        st.sampled_from([*COLUMNS, "name", "dtype", "rows.x", "", "\x00"]), columns_of_parquet
    ),
    drop=st.integers(0, 3),
)
def test_any_parquet_file_is_tables_or_refused(folder, columns, drop):
    held = {"rows": [100], "dim": [8], "pooling_factor": [1]} | columns
    for name in list(held)[:drop] if drop > 1 else ():
        del held[name]
    path = folder / "any.parquet"
    pd.DataFrame(held).to_parquet(path)
    tables = read_or_refused(lambda: read_tables(path), str(path))
    assert tables is None or len(tables) == 1


@given(at=st.floats(0, 1), put=st.binary(min_size=1, max_size=8))
def test_a_damaged_parquet_file_is_refused_or_read(folder, at, put):
    buffer = io.BytesIO()
    pd.DataFrame({"rows": [100] * 50, "dim": [8] * 50, "pooling_factor": [1] * 50}).to_parquet(
        buffer
    )
    content = bytearray(buffer.getvalue())
    place = int(at * len(content))
    content[place : place + len(put)] = put
    path = folder / "damaged.parquet"
    path.write_bytes(content)
    read_or_refused(lambda: read_tables(path), str(path))


def test_a_parquet_file_that_unpacks_to_too_much_is_refused_before_it_is(folder):
    path = folder / "bomb.parquet"
    rows = 10**6
    pd.DataFrame({"rows": pd.Series([1]).repeat(rows), "dim": 8, "pooling_factor": 1}).to_parquet(
        path, index=False
    )
    assert path.stat().st_size < rows / 10
    said = refusal(lambda: read_tables(path))
    assert f"{rows:,} tables" in said
    assert f"{MOST_TABLES:,}" in said


def test_columns_that_are_not_asked_for_are_not_looked_at(folder):
    path = folder / "others.parquet"
    frame = pd.DataFrame(
        {"rows": [100], "dim": [8], "pooling_factor": [1], "other": [[{"a": [1]}]]}
    )
    frame.to_parquet(path)
    assert read_tables(path)[0].rows == 100

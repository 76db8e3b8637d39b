"""Workloads: ids that are nonsense, parameters that would take for ever, files that lie."""

import copy
import gzip
import io
import json
from functools import partial

import pandas as pd
import pytest
from hostile import NUMBERS, TEXTS, change, changes, read_or_refused, refusal
from hypothesis import example, given
from hypothesis import strategies as st

from harness.contract import count_calls
from harness.contract.registry import load_registry
from harness.model import files
from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.model.topology import MOST_GPUS
from harness.topologies.lookup import find_topology
from planners.dimspec.conversion.partition import checked_partition
from planners.dimspec.stream_file import read_stream
from planners.embedding.plan_files.loader import plan_constraints
from planners.embedding.tables.files import COLUMNS, MOST_TABLES, read_tables

FAMILIES = {family.name: family for family in load_registry().families}
KEYS = {
    "embedding": ("tables", "seed", "memory"),
    "dtensor": ("op", "dims", "cases", "seed", "impl", "params"),
    "dimspec": ("rank", "shape", "mesh", "dims", "calls", "conversions", "seed", "model"),
    "reshard": ("layers", "stage", "ops", "inserts", "seed"),
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


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


PLAN = {
    "format": "shardbench-plan",
    "version": 1,
    "world_size": 2,
    "local_world_size": 2,
    "quality": {"max_rank_ms": 1.0},
    "tables": [
        {
            "name": "a",
            "rows": 100,
            "dim": 8,
            "dtype": "fp32",
            "pooling_factors": [1.0],
            "sharding_type": "table_wise",
            "compute_kernel": "fused",
            "cache_load_factor": None,
            "shards": [
                {
                    "size": [100, 8],
                    "offset": [0, 0],
                    "rank": 1,
                    "storage_bytes": {"hbm": 3200, "ddr": 0, "ssd": 0},
                    "perf_ms": dict.fromkeys(
                        ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms"), 0.1
                    ),
                }
            ],
        }
    ],
}


def write_plan(folder, plan):
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    return path


def test_the_plan_that_is_changed_here_can_be_read(folder):
    assert list(plan_constraints(write_plan(folder, PLAN))) == ["a"]


@given(wanted=changes(PLAN))
def test_a_changed_plan_is_read_or_refused(folder, wanted):
    plan = copy.deepcopy(PLAN)
    change(plan, wanted)
    path = write_plan(folder, plan)
    within = read_or_refused(lambda: plan_constraints(path), str(path))
    for constraint in (within or {}).values():
        assert constraint.sharding_types is not None
        assert constraint.min_partition is not None


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        (("world_size",), 10**400, "`$.world_size`"),
        (("world_size",), 1, "Shard 0 of table a is on rank 1 of 1."),
        (("tables",), {}, "Expected `array`, got `object` - at `$.tables`"),
        (("tables", 0), "a", "Expected `object`, got `str` - at `$.tables[0]`"),
        (("tables", 0, "rows"), 1.5, "`$.tables[0].rows`, table a."),
        (("tables", 0, "rows"), True, "Expected `int`, got `bool` - at `$.tables[0].rows`"),
        (("tables", 0, "pooling_factors", 0), -1, "`$.tables[0].pooling_factors[0]`, table a."),
        (("tables", 0, "sharding_type"), "os.system", "Invalid enum value 'os.system'"),
        (("tables", 0, "compute_kernel"), "x", "The kernel of table a must be one of fused, "),
        (("tables", 0, "cache_load_factor"), 7, "Expected `float` < 1.0"),
        (("tables", 0, "shards", 0, "rank"), -1, "Expected `int` >= 0"),
        (("tables", 0, "shards", 0, "size"), [1], "Expected `array` of length >= 2"),
        (("tables", 0, "shards", 0, "perf_ms"), [], "Expected `object`, got `array`"),
        (("tables", 0, "shards", 0, "storage_bytes", "hbm"), "1", "Expected `int`, got `str`"),
    ],
)
def test_a_value_of_a_plan_that_cannot_be_is_named(folder, way, value, said):
    plan = copy.deepcopy(PLAN)
    change(plan, [(way, "put", value)])
    assert said in refusal(lambda: plan_constraints(write_plan(folder, plan)))


def test_a_plan_that_places_a_table_twice_is_refused(folder):
    said = refusal(
        lambda: plan_constraints(write_plan(folder, PLAN | {"tables": PLAN["tables"] * 2}))
    )
    assert "places table a 2 times" in said


ANSWERED = {"path": ["[R, R]", "[S0, R]"], "comms": ["SPLIT_FWD_GATHER_BWD"]}
COST = {"fwd": 100, "bwd": 17.1, "total": 117.1}
STREAM = {
    "mesh_shape": [2, 4],
    "mesh_alpha": [1, 2.5],
    "queries": [
        {"shape": [8, 4], "src": [], "dst": [[0, [0]]], **ANSWERED, "cost": COST},
        {"shape": [8, 4], "src": [[-1, [1]]], "dst": [[0, [0, 1]]], **ANSWERED, "cost": COST},
        {"shape": [6, 4], "src": [[0, [0]]], "dst": [], **ANSWERED, "cost": COST},
    ],
    "sequence": [0, 1, 0, 2],
}


@given(wanted=changes(STREAM), mesh=st.sampled_from([None, (8,), (4, 2), (2, 2, 2)]))
@example(wanted=[(("mesh_shape", 0), "put", 10**400)], mesh=None)
@example(wanted=[(("queries", 0, "shape", 0), "put", 10**400)], mesh=None)
def test_a_changed_stream_is_read_or_refused(folder, wanted, mesh):
    document = copy.deepcopy(STREAM)
    change(document, wanted)
    path = folder / "stream.json"
    path.write_text(json.dumps(document))
    stream = read_or_refused(
        lambda: read_stream(path, lambda recorded: mesh or recorded), f"{path}: "
    )
    if stream is None:
        return
    assert len(stream.sequence) + stream.left_out == len(document["sequence"])
    assert set(stream.sequence) == set(range(len(stream.queries)))
    for asked in stream.queries:
        for partition in (asked.source, asked.target):
            assert checked_partition(asked.mesh, asked.shape, partition) == partition
        assert mesh in (None, asked.mesh.shape)
    assert stream.recorded is None or len(stream.recorded) == len(stream.queries)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, "9" * 5000, "\x00", '"\ud800'])
def test_text_that_is_no_document_is_no_plan_and_no_stream(folder, text):
    content = text.encode(errors="surrogatepass")
    path = folder / "deep.json"
    path.write_bytes(content)
    assert "is no plan" in refusal(lambda: plan_constraints(path))
    packed = folder / "deep.json.gz"
    packed.write_bytes(gzip.compress(content))
    refusal(lambda: read_stream(packed))


def test_a_stream_that_unpacks_to_too_much_is_refused_before_it_is(folder, monkeypatch):
    monkeypatch.setattr(files, "_MOST_JSON_BYTES", 2**20)
    path = folder / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**22))
    assert path.stat().st_size < 2**14
    assert "must hold at most 1,048,576 bytes of JSON text" in refusal(lambda: read_stream(path))


@given(content=st.binary(max_size=100))
def test_any_bytes_packed_or_not_are_a_stream_or_refused(folder, content):
    path = folder / "any.json.gz"
    for written in (content, gzip.compress(content), gzip.compress(content)[:-4]):
        path.write_bytes(written)
        assert read_or_refused(lambda: read_stream(path), str(path)) is None

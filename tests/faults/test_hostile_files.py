"""Every file of a user is read, or refused in one sentence that names it, before it does harm."""

import copy
import csv
import gzip
import io
import json
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from hostile import NUMBERS, TEXTS, change, changes, no_files, read_or_refused, refusal
from hypothesis import given, settings, strategies as st

from harness.contract.registry import load_registry
from harness.model import files
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import data_text, find_topology
from planners.embedding.plan_files.loader import plan_constraints
from planners.embedding.tables.files import COLUMNS, MOST_TABLES, read_tables
from reports.core.frames import read_results

TABLES = "name,rows,dim,pooling_factor,dtype\na,100,8,1|10,fp16\nb,1000,64,2.5,\n"
SIZES = {"rows": [100], "dim": [8], "pooling_factor": [1]}
PRESETS = [line for line in data_text("topologies.csv").splitlines() if line[:1] != "#"]
TOPOLOGY = next(csv.DictReader(PRESETS)) | {"name": "mine"}
PLAN = json.loads("""{
  "format": "shardbench-plan", "version": 1, "world_size": 2, "local_world_size": 2,
  "quality": {"max_rank_ms": 1.0},
  "tables": [{
    "name": "a", "rows": 100, "dim": 8, "dtype": "fp32", "pooling_factors": [1.0],
    "sharding_type": "table_wise", "compute_kernel": "fused", "cache_load_factor": null,
    "shards": [{
      "size": [100, 8], "offset": [0, 0], "rank": 1,
      "storage_bytes": {"hbm": 3200, "ddr": 0, "ssd": 0},
      "perf_ms": {"fwd_compute": 0.1, "fwd_comms": 0.1, "bwd_compute": 0.1, "bwd_comms": 0.1}
    }]
  }]
}""")


def topology_text(columns: dict[str, str], *rows: dict[str, str]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns))
    writer.writeheader()
    writer.writerows([columns, *rows])
    return text.getvalue()


def parquet(columns: dict[str, list]) -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


# The suffix of the files of each parser, the parser, and a file that it reads.
LINES = topology_text(TOPOLOGY)
PARSERS = {
    "tables": (".csv", read_tables, TABLES.encode()),
    "parquet": (".parquet", read_tables, parquet(SIZES)),
    "topologies": (".csv", lambda path: find_topology(str(path), 8), LINES.encode()),
    "plan": (".json", plan_constraints, json.dumps(PLAN).encode()),
    "packed": (".json.gz", files.read_json, gzip.compress(json.dumps(PLAN).encode(), mtime=0)),
}
# These are read elsewhere, or not before the problem is built.
OTHERS = {
    "results": (".jsonl", lambda path: read_results(Path(path))),
    "named topology": (".csv", lambda path: find_topology(f"{path}#mine", 8)),
    "label": (".csv", lambda path: load_registry().find("embedding").label(WorkloadSpec(path))),
}
parsers = pytest.mark.parametrize("parser", PARSERS)


@pytest.mark.parametrize("parser", {**PARSERS, **OTHERS})
def test_what_is_no_file_is_refused_at_once(tmp_path, parser):
    """A folder, a pipe, a device, a loop of links, an impossible name, an empty file."""
    suffix, read, *_ = {**PARSERS, **OTHERS}[parser]
    for name, path in no_files(tmp_path, suffix).items():
        said = refusal(partial(read, path))
        assert "cannot be read: " in said, name
        assert str(tmp_path) in said or "nnn" in said  # of a long path the middle is left out
    empty = tmp_path / f"empty{suffix}"
    empty.touch()
    assert "empty" in refusal(lambda: read(str(empty)))


@parsers
@settings(max_examples=40)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(folder, parser, data):
    """A file of any bytes, or a damaged one, gives a result or one sentence."""
    suffix, read, content = PARSERS[parser]
    at, length = (data.draw(st.integers(0, most)) for most in (len(content), 8))
    odd = st.sampled_from([*TEXTS, *NUMBERS, '"', ",", "\r", "\ufeff", '"' * 3, "x" * 2**18])
    put = data.draw(
        st.binary(max_size=100) | odd.map(lambda text: text.encode(errors="surrogatepass"))
    )
    path = folder / f"any{suffix}"
    path.write_bytes(content)
    assert read(path)
    for written in (put, content[:at] + put + content[at + length :], content[:at]):
        path.write_bytes(written)
        read_or_refused(lambda: read(path), str(path))


@settings(max_examples=40)
@given(
    changed=st.dictionaries(
        st.sampled_from([*TOPOLOGY, "another", ""]),
        st.sampled_from([*TEXTS, *NUMBERS, "", "0", "1", "1e300", "5e-324", "4e9", "1e18"]),
        min_size=1,
        max_size=3,
    ),
    gpus=st.sampled_from([1, 8, 64, 10**6, 10**400]),
)
def test_any_topology_that_is_read_has_possible_sizes(folder, changed, gpus):
    """A changed cell gives a topology with these GPUs, whose meshes exist, or is refused."""
    path = folder / "cells.csv"
    path.write_bytes(topology_text(TOPOLOGY | changed).encode(errors="surrogatepass"))
    topology = read_or_refused(lambda: find_topology(str(path), gpus))
    if topology is not None:
        assert topology.gpus == gpus
        assert 1 <= topology.domain_size <= 4096
        for ndim in (1, 2, 3, 4):
            read_or_refused(partial(topology.mesh_shape, ndim))


odd_columns = st.sampled_from(
    [
        *([1], [None], [1.5], [float("nan")], [float("inf")], ["x"], [True], [b"x"], [[1]]),
        *([{"a": 1}], [-1], [2**62], [1e300], [pd.Timestamp(0)], ["\x00"], ["\u202e" * 99]),
    ]
)


@settings(max_examples=40)
@given(
    columns=st.dictionaries(
        st.sampled_from([*COLUMNS, "name", "dtype", "rows.x", "", "\x00"]), odd_columns
    )
)
def test_any_parquet_columns_are_tables_or_refused(folder, columns):
    """Every type of column gives a table of possible sizes, or one sentence."""
    path = folder / "columns.parquet"
    path.write_bytes(parquet(SIZES | columns))
    for table in read_or_refused(lambda: read_tables(path), str(path)) or ():
        assert 1 <= table.rows <= 10**12
        assert 4 <= table.dim <= 2**16
        assert all(0 < factor <= 10**6 for factor in table.pooling_factors)


@given(wanted=changes(PLAN))
def test_a_changed_plan_is_read_or_refused(folder, wanted):
    """A plan that is read has a type and a size of shards for each table."""
    plan = copy.deepcopy(PLAN)
    change(plan, wanted)
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    for constraint in (read_or_refused(lambda: plan_constraints(path), str(path)) or {}).values():
        assert constraint.sharding_types is not None
        assert constraint.min_partition is not None


def changed_plan(*path: object, value: object) -> bytes:
    plan = copy.deepcopy(PLAN)
    change(plan, [(path, "put", value)])
    return json.dumps(plan).encode()


SHARD = ("tables", 0, "shards", 0)


@pytest.mark.parametrize(
    ("parser", "content", "said"),
    [
        ("topologies", b"x" * 2**18, "field larger than field limit (131072)."),
        ("plan", changed_plan("world_size", value=1), "damaged plan: table a is on rank 1 of 1."),
        ("plan", changed_plan("tables", value=PLAN["tables"] * 2), "places table a 2 times"),
        ("plan", changed_plan("tables", 0, "rows", value=1.5), "`$.tables[0].rows`, table a."),
        ("plan", changed_plan("tables", 0, "compute_kernel", value="x"), "must be one of fused, "),
        ("plan", changed_plan(*SHARD, "rank", value=-1), "Expected `int` >= 0"),
        *(
            (parser, text if parser == "plan" else gzip.compress(text, mtime=0), "")
            for parser in ("plan", "packed")
            for text in (b"[" * 10**6, b'{"a":' * 10**5, b"9" * 5000, b"\x00", b'"\xed\xa0\x80')
        ),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, parser, content, said):
    """Values, rows, nesting."""
    suffix, read, _ = PARSERS[parser]
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    assert said in refusal(lambda: read(path))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_marks_do_not_matter(tmp_path, ending, mark):
    """A CSV file of any editor is the same file."""
    path = tmp_path / "mine.csv"
    path.write_bytes((mark + TABLES.replace("\n", ending)).encode())
    assert [table.name for table in read_tables(path)] == ["a", "b"]
    path.write_bytes((mark + LINES.replace("\r\n", ending)).encode())
    assert find_topology(str(path), 8).source == TOPOLOGY["source"]


def test_what_unpacks_to_too_much_is_refused_before_it_is(tmp_path, monkeypatch):
    """A small file of many bytes or rows is refused by its head."""
    monkeypatch.setattr(files, "_MOST_JSON_BYTES", 2**20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**22))
    assert "must hold at most 1,048,576 bytes of JSON text" in refusal(
        lambda: files.read_json(path)
    )
    path = tmp_path / "bomb.parquet"
    many = pd.Series([1]).repeat(10**6)
    pd.DataFrame({"rows": many, "dim": 8, "pooling_factor": 1}).to_parquet(path, index=False)
    assert f"{MOST_TABLES:,}" in refusal(lambda: read_tables(path))


def test_a_file_is_read_whole_up_to_a_limit(tmp_path, monkeypatch):
    """Also through a link."""
    monkeypatch.setattr(files, "MOST_BYTES", 4)
    path = tmp_path / "mine"
    path.write_bytes(b"\x00\xff\r\n")
    (tmp_path / "link").symlink_to(path)
    assert files.read_file(tmp_path / "link") == b"\x00\xff\r\n"
    path.write_bytes(b"12345")
    assert "must hold at most 4 bytes" in refusal(lambda: files.read_file(path))

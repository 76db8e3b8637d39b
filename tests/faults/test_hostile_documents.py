"""Plan files and files of recorded conversions that are changed, damaged or of another kind."""

import copy
import gzip
import json

import pytest
from hostile import change, changes, read_or_refused, refusal
from hypothesis import example, given, strategies as st

from harness.model import files
from planners.dimspec.conversion.partition import checked_partition
from planners.dimspec.stream_file import read_stream
from planners.embedding.plan_files.loader import plan_constraints

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
        (("tables", 0, "cache_load_factor"), "7", "Expected `int | float | null`, got `str`"),
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

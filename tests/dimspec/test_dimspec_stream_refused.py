"""Wrong files of recorded conversions are refused in one sentence with the fault."""

import gzip
import json
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from recorded_streams import DOCUMENT, file_refusal, with_query, without
from small_streams import SEARCHES, refusal, write_stream

from harness.contract import UsageError
from planners.dimspec.implementation import validate
from planners.dimspec.problem import StreamProblem, answer
from planners.dimspec.stream_file import read_stream


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("streams") / "mine.json.gz"


PACKED = gzip.compress(json.dumps(DOCUMENT).encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x1f\x8b", "is no complete gzip file."),
        (json.dumps(DOCUMENT).encode(), "is no complete gzip file."),
        (PACKED[:-1], "is no complete gzip file."),
        (PACKED[:-6] + b"xx" + PACKED[-4:], "is no complete gzip file."),
        (PACKED + b"more", "is no complete gzip file."),
        (gzip.compress(b"{", mtime=0), "does not hold JSON text."),
        (gzip.compress(b"\xff\xfe\xfa", mtime=0), "does not hold JSON text."),
        (gzip.compress(b"[]", mtime=0), "it must hold one JSON object."),
        (gzip.compress(b"{}", mtime=0), "`mesh_shape`."),
    ],
)
def test_a_file_of_something_else_is_refused(content, said, path):
    path.write_bytes(content)
    assert refusal(UsageError, read_stream, path).endswith(said)


def with_cost(value: Any) -> dict[str, Any]:
    return with_query(0, cost={"fwd": 1, "bwd": value, "total": 1})


NO_FLOAT = [-1, nan, inf, 10**400, True, None, "1"]
NO_SIZE = [0, 2**31 + 1, 10**4000, True, 4.0, "4"]


@pytest.mark.parametrize(
    ("document", "at"),
    [
        *((without(DOCUMENT, key), key) for key in ("mesh_shape", "queries", "sequence")),
        *((DOCUMENT | {"mesh_shape": [2, value]}, "mesh_shape[1]") for value in NO_SIZE),
        *((DOCUMENT | {"mesh_shape": value}, "mesh_shape") for value in ([], [1] * 5, None)),
        *((DOCUMENT | {"mesh_beta": [1, value]}, "mesh_beta[1]") for value in NO_FLOAT),
        (DOCUMENT | {"mesh_alpha": None}, "mesh_alpha"),
        (DOCUMENT | {"mesh_alpha": [1]}, "mesh_alpha"),
        (DOCUMENT | {"queries": [3]}, "queries[0]"),
        *((with_query(1, shape=[8, value]), "queries[1].shape[1]") for value in NO_SIZE),
        *((with_query(1, shape=value), "queries[1].shape") for value in ([1] * 9, None)),
        (with_query(2, src={}), "queries[2].src"),
        (with_query(2, src=[[0]]), "queries[2].src[0]"),
        (with_query(2, dst=[[0, 1]]), "queries[2].dst[0][1]"),
        (with_query(2, dst=[[0, [True]]]), "queries[2].dst[0][1][0]"),
        (with_query(0, path=None), "queries[0].path"),
        (with_query(0, comms=[1]), "queries[0].comms[0]"),
        (with_query(0, cost=[1, 2, 3]), "queries[0].cost"),
        (with_query(0, cost={"fwd": 1, "bwd": 1}), "queries[0].cost"),
        *((with_cost(value), "queries[0].cost.bwd") for value in NO_FLOAT),
        (DOCUMENT | {"sequence": [0, 3]}, "sequence"),
        *(
            (DOCUMENT | {"sequence": [0, index]}, "sequence[1]")
            for index in (-1, True, 1.0, "0", None, [0], ["a"] * 10_000)
        ),
    ],
)
def test_a_value_that_cannot_be_used_is_named(document, at, path):
    said = file_refusal(path, document)
    assert f"'{at}'" in said or f"`{at}`" in said


@pytest.mark.parametrize(
    ("document", "query"),
    [
        (with_query(2, src=[[0, [1]]]), 2),  # does not divide
        (with_query(1, src=[[0, [0]], [1, [0]]]), 1),  # an axis twice
        (with_query(0, dst=[[0, [2]]]), 0),  # no such axis
        (with_query(1, src=[[7, [0]]]) | {"sequence": [0]}, 1),  # not asked, and refused too
    ],
)
@pytest.mark.parametrize("mesh", [(2, 4), (4, 2)])
def test_a_partition_that_is_not_possible_is_named_on_any_mesh(document, query, mesh, path):
    said = file_refusal(path, document, lambda recorded: mesh)
    assert said.startswith(f"query {query}: Partition {{")


@pytest.mark.parametrize("name", ["eager-dict", "interned", "optimal"])
def test_queries_that_are_not_asked_do_not_matter(name, path):
    stream = read_stream(write_stream(path, DOCUMENT | {"sequence": [0, 2]}))
    assert [query.shape for query in stream.queries] == [(8, 4), (6, 4)]
    assert stream.sequence == [0, 1]
    validate(StreamProblem(stream), answer(stream, SEARCHES[name]()))


@pytest.mark.parametrize("mesh", [(2, 4), (4, 2)])
def test_a_file_that_asks_nothing_is_said_to_ask_nothing(mesh, path):
    said = file_refusal(path, DOCUMENT | {"sequence": []}, lambda recorded: mesh)
    assert said == "it asks nothing."

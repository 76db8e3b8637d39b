"""Files of recorded conversions are read completely."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
from recorded_streams import DOCUMENT, file_refusal, without
from small_streams import SEARCHES, refusal, write_stream

from harness.contract import UsageError
from planners.dimspec.conversion.partition import Mesh
from planners.dimspec.conversion.stream import Query, RecordedAnswer, Stream
from planners.dimspec.implementation import validate
from planners.dimspec.problem import StreamProblem, answer
from planners.dimspec.stream_file import read_stream


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("streams") / "mine.json.gz"


def test_what_is_written_is_read(path):
    stream = read_stream(write_stream(path, DOCUMENT))
    mesh = Mesh((2, 4), (1.0, 2.5), (0.0, 1e-9))
    assert stream == Stream(
        (
            Query(mesh, (8, 4), (), ((0, (0,)),)),
            Query(mesh, (8, 4), ((1, (1,)), (0, (0,))), ((0, (0, 1)),)),
            Query(mesh, (6, 4), ((0, (0,)),), ()),
        ),
        [0, 1, 0, 2, 1, 0],
        (RecordedAnswer(("[R, R]", "[S0, R]"), ("SPLIT_FWD_GATHER_BWD",), (100.0, 17.1, 117.1)),)
        * 3,
    )
    assert stream.meshes == "2x4"


def test_costs_may_be_left_out_and_are_1_then(path):
    document = without(DOCUMENT, "mesh_alpha", "mesh_beta")
    (query, *_) = read_stream(write_stream(path, document)).queries
    assert query.mesh == Mesh.of(2, 4)


@pytest.mark.parametrize("key", ["path", "comms", "cost"])
def test_answers_that_some_queries_lack_are_not_known(key, path):
    document = deepcopy(DOCUMENT)
    del document["queries"][1][key]
    assert read_stream(write_stream(path, document)).recorded is None


def test_scalars_are_tensors_too(path):
    document = {"mesh_shape": [8], "queries": [{"shape": [], "src": [], "dst": []}]}
    stream = read_stream(write_stream(path, document | {"sequence": [0]}))
    answers = answer(stream, SEARCHES["interned"]())
    validate(StreamProblem(stream), answers)


def test_on_another_mesh_what_does_not_divide_is_left_out_and_counted(path):
    write_stream(path, DOCUMENT)
    stream = read_stream(path, lambda recorded: (4, 2))
    mesh = Mesh((4, 2), (1.0, 2.5), (0.0, 1e-9))
    assert stream == Stream(
        (
            Query(mesh, (8, 4), (), ((0, (0,)),)),
            Query(mesh, (8, 4), ((1, (1,)), (0, (0,))), ((0, (0, 1)),)),
        ),
        [0, 1, 0, 1, 0],
        None,
        left_out=1,
    )
    stream = read_stream(path, lambda recorded: (8,))
    assert [query.source for query in stream.queries] == [()]
    assert [query.mesh for query in stream.queries] == [Mesh.of(8)]
    assert (stream.sequence, stream.left_out) == ([0, 0, 0], 3)
    assert read_stream(path, lambda recorded: (2, 2, 2)).left_out == 0


def test_a_mesh_on_which_nothing_divides_is_refused(path):
    assert "possible on mesh 7x11" in file_refusal(path, DOCUMENT, lambda recorded: (7, 11))


def test_the_first_calls_are_those_and_no_other_queries(path):
    document = deepcopy(DOCUMENT)
    document["sequence"] = [2, 1, 2, 0]
    document["queries"][2]["cost"] = {"fwd": 1, "bwd": 2, "total": 3}
    write_stream(path, document)
    first = read_stream(path, calls=3)
    assert [query.shape for query in first.queries] == [(8, 4), (6, 4)]
    assert [query.target for query in first.queries] == [((0, (0, 1)),), ()]
    assert first.sequence == [1, 0, 1]
    assert first.recorded is not None
    assert [recorded.cost for recorded in first.recorded] == [(100.0, 17.1, 117.1), (1.0, 2.0, 3.0)]
    assert read_stream(path, calls=1).sequence == [0]
    assert read_stream(path, calls=100) == read_stream(path)


@pytest.mark.parametrize(("calls", "sequence", "left_out"), [(3, [0, 1, 0], 0), (4, [0, 1, 0], 1)])
def test_what_is_left_out_is_counted_in_the_first_calls(calls, sequence, left_out, path):
    stream = read_stream(write_stream(path, DOCUMENT), lambda recorded: (4, 2), calls)
    assert (stream.sequence, stream.left_out) == (sequence, left_out)


def test_a_file_may_be_packed_or_not_and_have_the_header_of_a_captured_one(path):
    expected = read_stream(write_stream(path, DOCUMENT))
    plain = path.with_name("plain.json")
    plain.write_text(json.dumps(DOCUMENT))
    assert read_stream(plain) == expected
    header = {"version": 1, "family": "dimspec", "names": "as they are", "packages": {}}
    plain.write_text(json.dumps({"shardbench": header, **DOCUMENT}))
    assert read_stream(plain) == expected
    for wrong, said in (
        ({**header, "family": "dtensor"}, "captured from family 'dtensor'"),
        ({**header, "version": 2}, "is of version 2"),
        ({}, "is no file that shardbench.capture wrote"),
    ):
        plain.write_text(json.dumps({"shardbench": wrong, **DOCUMENT}))
        assert said in refusal(UsageError, read_stream, plain)


def test_calls_that_could_not_be_recorded_are_left_out_too(path):
    document = {**DOCUMENT, "left_out": 5}
    assert read_stream(write_stream(path, document)).left_out == 5
    assert read_stream(path, lambda recorded: (4, 2), calls=4).left_out == 6
    assert "'left_out'" in file_refusal(path, {**DOCUMENT, "left_out": -1})

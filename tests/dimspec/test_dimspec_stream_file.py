"""Files of recorded conversions: what is in them is read, and what is wrong is said."""

import gzip
import json
from contextlib import suppress
from copy import deepcopy
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_streams import SEARCHES, is_a_sentence, write_stream

from harness.contract import UsageError
from planners.dimspec.answers import answer
from planners.dimspec.capture.stream_file import read_stream
from planners.dimspec.conversion.costs import Cost
from planners.dimspec.conversion.partition import Mesh, checked_partition
from planners.dimspec.conversion.stream import Query, RecordedAnswer, Stream
from planners.dimspec.decision import validate
from planners.dimspec.problem import StreamProblem

ANSWERED = {
    "path": ["[R, R]", "[S0, R]"],
    "comms": ["SPLIT_FWD_GATHER_BWD"],
    "cost": {"fwd": 100, "bwd": 17.1, "total": 117.1},
}
COST = Cost(100.0, 17.1, 117.1)
DOCUMENT: dict[str, Any] = {
    "source": "made up",
    "mesh_shape": [2, 4],
    "mesh_alpha": [1, 2.5],
    "mesh_beta": [0, 1e-9],
    "queries": [
        {"shape": [8, 4], "src": [], "dst": [[0, [0]]], **ANSWERED},
        {"shape": [8, 4], "src": [[-1, [1]], [0, [0]]], "dst": [[0, [0, 1]]], **ANSWERED},
        {"shape": [6, 4], "src": [[0, [0]]], "dst": [], **ANSWERED},
    ],
    "sequence": [0, 1, 0, 2, 1, 0],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("streams") / "mine.json.gz"


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def with_query(number: int, **changes: Any) -> dict[str, Any]:
    document = deepcopy(DOCUMENT)
    document["queries"][number].update(changes)
    return document


def refusal(path: Path, document: Any, *choose: Any) -> str:
    """Return what is said of a file, less its name, which is said first."""
    with pytest.raises(UsageError) as refused:
        read_stream(write_stream(path, document), *choose)
    said = str(refused.value)
    assert said.startswith(f"{path}: ")
    assert is_a_sentence(said)
    return said.removeprefix(f"{path}: ")


def read_or_refused(path: Path, *choose: Any) -> tuple[Stream | None, str]:
    """Return a stream, or None and what is said; no other error may come."""
    try:
        return read_stream(path, *choose), ""
    except UsageError as refused:
        return None, str(refused)


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


def test_the_chosen_mesh_is_asked_for_with_the_recorded_one(path):
    asked = []

    def choose(recorded):
        asked.append(recorded)
        return recorded

    assert read_stream(write_stream(path, DOCUMENT), choose) == read_stream(path)
    assert asked == [(2, 4)]


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
    said = refusal(path, DOCUMENT, lambda recorded: (7, 11))
    assert said == "none of its conversions is possible on mesh 7x11."


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
        ({**header, "family": "dtensor"}, " was captured from family 'dtensor', not from"),
        ({**header, "version": 2}, " is of version 2; this shardbench reads 1."),
        ({}, " is no file that shardbench.capture wrote."),
    ):
        plain.write_text(json.dumps({"shardbench": wrong, **DOCUMENT}))
        with pytest.raises(UsageError) as refused:
            read_stream(plain)
        assert str(refused.value).startswith(f"{plain}{said}")


def test_calls_that_could_not_be_recorded_are_left_out_too(path):
    document = {**DOCUMENT, "left_out": 5}
    assert read_stream(write_stream(path, document)).left_out == 5
    assert read_stream(path, lambda recorded: (4, 2), calls=4).left_out == 6
    assert refusal(path, {**DOCUMENT, "left_out": -1}) == ("Expected `int` >= 0 - at `$.left_out`.")


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError) as refused:
        read_stream(tmp_path / "none.json.gz")
    assert (
        str(refused.value) == f"{tmp_path}/none.json.gz cannot be read: No such file or directory."
    )


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(UsageError) as refused:
        read_stream(tmp_path)
    assert str(refused.value) == f"{tmp_path} cannot be read: Is a directory."


VALID = gzip.compress(json.dumps(DOCUMENT).encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not hold JSON text."),
        (b"\x1f\x8b", "is no complete gzip file."),
        (json.dumps(DOCUMENT).encode(), "is no complete gzip file."),
        (VALID[: len(VALID) // 2], "is no complete gzip file."),
        (VALID[:-1], "is no complete gzip file."),
        (VALID[:-6] + b"xx" + VALID[-4:], "is no complete gzip file."),
        (VALID + b"more", "is no complete gzip file."),
        (gzip.compress(b"", mtime=0), "does not hold JSON text."),
        (gzip.compress(b"{", mtime=0), "does not hold JSON text."),
        (gzip.compress(b"\xff\xfe\xfa", mtime=0), "does not hold JSON text."),
        (gzip.compress(b"[" * 100_000, mtime=0), "does not hold JSON text."),
        (gzip.compress(b"[" * 100_000 + b"]" * 100_000, mtime=0), "does not hold JSON text."),
        (gzip.compress(b"1" * 5000, mtime=0), "does not hold JSON text."),
        (gzip.compress(b"[]", mtime=0), "it must hold one JSON object."),
        (gzip.compress(b"null", mtime=0), "it must hold one JSON object."),
        (gzip.compress(b"{}", mtime=0), "Object missing required field `mesh_shape`."),
    ],
)
def test_a_file_of_something_else_is_refused_in_one_sentence(content, said, path):
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_stream(path)
    assert str(refused.value) in (f"{path} {said}", f"{path}: {said}")


@settings(max_examples=15, deadline=None)
@given(start=st.integers(0, len(VALID)), stop=st.integers(0, len(VALID)), put=st.binary(max_size=9))
def test_bytes_that_are_changed_are_refused_in_one_sentence_or_read(start, stop, put, path):
    path.write_bytes(VALID[:start] + put + VALID[stop:])
    stream, said = read_or_refused(path)
    assert stream or (said.startswith(str(path)) and is_a_sentence(said))


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
    said = refusal(path, document)
    assert f"`$.{at}`" in said or f"`{at}`" in said


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            with_query(2, src=[[0, [1]]]),
            "query 2: Partition {0: [1]} shares dimension 0, of size 6, between 4 devices, which "
            "do not divide it.",
        ),
        (
            with_query(1, src=[[0, [0]], [1, [0]]]),
            "query 1: Partition {0: [0], 1: [0]} uses mesh axis 0 twice.",
        ),
        (
            with_query(0, dst=[[2, [0]]]),
            "query 0: Partition {2: [0]} names dimension 2 of a tensor that has 2, counted from 0.",
        ),
        (
            with_query(0, dst=[[0, [2]]]),
            "query 0: Partition {0: [2]} names mesh axis 2, and mesh 2x4 has 2, counted from 0.",
        ),
        (
            with_query(0, dst=[[0, [1, 0]]]),
            "query 0: Partition {0: [1, 0]} shards dimension 0 by mesh axes in the order 1, 0; a "
            "conversion knows rising axes only.",
        ),
        (
            with_query(0, dst=[[0, []]]),
            "query 0: Partition {0: []} names dimension 0 without mesh axes.",
        ),
    ],
)
def test_a_partition_that_is_not_possible_is_named(document, said, path):
    assert refusal(path, document) == said


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([10**30, 10**400, -(10**400)])
    | st.floats()
    | st.text("ab[]{}0\n'\"", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["shape", "src", "fwd", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where every value in a document is."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found = [here]
    for key, held in pairs:
        inside = (*here, key)
        found += places(held, inside) if isinstance(held, dict | list) else [inside]
    return found


PLACES = places(DOCUMENT)[1:]


def change(document: Any, way: tuple[Any, ...], what: str, value: Any) -> None:
    """Put a value where another one is, drop that one, or have it twice."""
    *outer, last = way
    for key in outer:
        document = document[key]
    if what == "put":
        document[last] = value
    elif what == "drop":
        del document[last]
    else:
        document += [document[last]]


@settings(max_examples=15, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(["put", "drop", "twice"]), json_values),
        min_size=1,
        max_size=3,
    ),
    mesh=st.sampled_from([None, (8,), (4, 2), (2, 2, 2)]),
)
@example(changes=[(("mesh_shape", 0), "put", 10**400)], mesh=None)
@example(changes=[(("queries", 0, "shape", 0), "put", 10**400)], mesh=None)
def test_any_change_is_either_read_or_refused_in_one_sentence(changes, mesh, path):
    document = deepcopy(DOCUMENT)
    for way, what, value in changes:
        with suppress(LookupError, TypeError):  # an earlier change took the place away
            change(document, way, what, value)
    choose = (lambda recorded: mesh) if mesh else (lambda recorded: recorded)
    stream, said = read_or_refused(write_stream(path, document), choose)
    if stream is None:
        assert said.startswith(f"{path}: ")
        assert is_a_sentence(said)
        return
    assert len(stream.sequence) + stream.left_out == len(document["sequence"])
    assert set(stream.sequence) == set(range(len(stream.queries)))
    for asked in stream.queries:
        for partition in (asked.source, asked.target):
            assert checked_partition(asked.mesh, asked.shape, partition) == partition
    if stream.recorded is not None:
        assert len(stream.recorded) == len(stream.queries)
    if mesh:
        assert {asked.mesh.shape for asked in stream.queries} == {mesh}


@pytest.mark.parametrize("name", ["eager-dict", "interned", "optimal"])
def test_queries_that_are_not_asked_do_not_matter(name, path):
    stream = read_stream(write_stream(path, DOCUMENT | {"sequence": [0, 2]}))
    assert [query.shape for query in stream.queries] == [(8, 4), (6, 4)]
    assert stream.sequence == [0, 1]
    validate(StreamProblem(stream), answer(stream, SEARCHES[name]()))


@pytest.mark.parametrize(
    "pairs", [[[7, [0]]], [[0, [0]], [1, [0]]], [[0, []]], [[0, [1, 0]]], [[0, [0]], [0, [1]]]]
)
def test_a_partition_of_no_mesh_at_all_is_an_error_on_another_mesh_too(pairs, path):
    with pytest.raises(UsageError, match="query 1: "):
        read_stream(write_stream(path, with_query(1, src=pairs)), lambda recorded: (4, 2))


def test_a_query_that_is_not_asked_is_looked_at_too(path):
    document = with_query(1, src=[[7, [0]]]) | {"sequence": [0]}
    assert refusal(path, document).startswith("query 1: Partition {7: [0]} names dimension 7 ")


@pytest.mark.parametrize("mesh", [(2, 4), (4, 2)])
def test_a_file_that_asks_nothing_is_said_to_ask_nothing(mesh, path):
    said = refusal(path, DOCUMENT | {"sequence": []}, lambda recorded: mesh)
    assert said == "it asks nothing."

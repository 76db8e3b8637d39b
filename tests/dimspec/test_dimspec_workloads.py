"""Workloads are checked before anything is made, and meshes follow what is asked for."""

import hashlib
from pathlib import Path

import pytest
from small_streams import is_a_sentence, problem_of, stream_of, write_stream

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dimspec.conversion.partition import Mesh
from planners.dimspec.conversion.stream import batch_of_eight, random_queries
from planners.dimspec.problem import ConstructorProblem, StreamProblem
from planners.dimspec.workloads import (
    MODELS,
    RECORDED,
    calls,
    checked,
    label,
    list_workloads,
    mesh_shape,
    random_conversions,
    shape,
    stream_path,
)

MACHINE = "dgx_a100_80gb"
NAMES = [each.name for each in list_workloads()]


@pytest.fixture
def file(tmp_path) -> Path:
    query = {"shape": [8, 8], "src": [], "dst": [[0, [0]]]}
    document = {"mesh_shape": [2, 4], "queries": [query], "sequence": [0, 0, 0]}
    return write_stream(tmp_path / "mine.json.gz", document)


@pytest.mark.parametrize("name", NAMES)
def test_every_listed_workload_is_valid_as_it_is(name):
    spec = WorkloadSpec(name)
    assert checked(spec) is spec
    assert label(spec) is spec


MOST = "must be a whole number from 1 to"
LEAST = "must be a whole number of at least"


@pytest.mark.parametrize(
    ("workload", "parameter", "rest"),
    [
        ("all-pairs[rank=0]", "rank", f"{MOST} 6, not '0'."),
        ("all-pairs[rank=7]", "rank", f"{MOST} 6, not '7'."),
        ("all-pairs[rank=four]", "rank", f"{MOST} 6, not 'four'."),
        ("all-pairs[dims=5]", "dims", f"{MOST} 4, not '5'."),
        ("constructor[dims=0]", "dims", f"{MOST} 4, not '0'."),
        ("random[conversions=0]", "conversions", f"{MOST} 1,000,000, not '0'."),
        ("random[conversions=1e3]", "conversions", f"{MOST} 1,000,000, not '1e3'."),
        ("random[seed=-1]", "seed", f"{LEAST} 0, not '-1'."),
        ("resnet50[calls=0]", "calls", f"{LEAST} 1, not '0'."),
        ("gpt12[calls=all]", "calls", f"{LEAST} 1, not 'all'."),
        ("mine.json.gz[calls=-5]", "calls", f"{LEAST} 1, not '-5'."),
        (
            "constructor[model=gpt2]",
            "model",
            "must be one of resnet50, gpt12, resnet-tiny, mlp2, not 'gpt2'.",
        ),
    ],
)
def test_a_value_that_is_not_possible_is_named_in_one_sentence(workload, parameter, rest):
    with pytest.raises(UsageError) as refused:
        checked(WorkloadSpec.parse(workload))
    assert str(refused.value) == f"Parameter '{parameter}' of workload '{workload}' {rest}"
    assert is_a_sentence(str(refused.value))


@pytest.mark.parametrize(
    ("workload", "parameter"),
    [
        ("all-pairs[shape=8x0]", "shape"),
        ("all-pairs[shape=8x]", "shape"),
        ("all-pairs[shape=8*8]", "shape"),
        ("all-pairs[shape=1x2x3x4x5x6x7]", "shape"),
        ("all-pairs[mesh=2x-4]", "mesh"),
        ("all-pairs[mesh=2x2x2x1x1]", "mesh"),
        ("resnet50[mesh=two]", "mesh"),
        ("mine.json.gz[mesh=2,4]", "mesh"),
        ("constructor[mesh=x]", "mesh"),
    ],
)
def test_sizes_that_are_not_possible_are_refused_with_an_example(workload, parameter):
    value = workload.split("=")[1].removesuffix("]")
    with pytest.raises(UsageError) as refused:
        checked(WorkloadSpec(workload.split("[")[0], {parameter: value}))
    said = str(refused.value)
    assert said.startswith(f"Parameter '{parameter}' of workload '{workload}' must be 1 to ")
    assert said.endswith(f"not '{value}'.")
    assert is_a_sentence(said)


@pytest.mark.parametrize("parameter", ["shape", "mesh"])
def test_an_example_is_followed_by_one_comma(parameter):
    with pytest.raises(UsageError) as refused:
        checked(WorkloadSpec("all-pairs", {parameter: "two"}))
    assert ",," not in str(refused.value)
    assert str(refused.value).endswith(", not 'two'.")


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (
            "all-pairs[rank=3,shape=8x8]",
            "Parameters 'rank' and 'shape' of workload 'all-pairs[rank=3,shape=8x8]' exclude each "
            "other.",
        ),
        (
            "all-pairs[mesh=2x4,dims=2]",
            "Parameters 'mesh' and 'dims' of workload 'all-pairs[mesh=2x4,dims=2]' exclude each "
            "other.",
        ),
        (
            "constructor[dims=2,mesh=2x4]",
            "Parameters 'mesh' and 'dims' of workload 'constructor[dims=2,mesh=2x4]' exclude each "
            "other.",
        ),
        (
            "all-pair",
            "Unknown workload of family 'dimspec', 'all-pair'; did you mean all-pairs or "
            "all-pairs-batch?",
        ),
        (
            "resnet-50",
            "Unknown workload of family 'dimspec', 'resnet-50'; did you mean resnet50?",
        ),
        (
            "all-pairs[ranks=3]",
            "Unknown parameter of workload 'all-pairs', 'ranks'; did you mean rank?",
        ),
        (
            "all-pairs-batch[rank=3]",
            "Unknown parameter of workload 'all-pairs-batch', 'rank'; known are: none.",
        ),
        (
            "random[conversion=3]",
            "Unknown parameter of workload 'random', 'conversion'; did you mean conversions?",
        ),
        (
            "resnet50[dims=2]",
            "Unknown parameter of workload 'resnet50', 'dims'; known are: calls, mesh.",
        ),
        (
            "mine.json.gz[rank=2]",
            "Unknown parameter of workload 'mine.json.gz', 'rank'; known are: calls, mesh.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(workload, said):
    with pytest.raises(UsageError) as refused:
        checked(WorkloadSpec.parse(workload))
    assert str(refused.value) == said


def test_an_unknown_name_is_answered_with_all_that_is_allowed():
    with pytest.raises(UsageError) as refused:
        checked(WorkloadSpec("nothing-alike-it"))
    said = str(refused.value)
    assert all(name in said for name in (*NAMES, "FILE.json.gz"))
    assert is_a_sentence(said)


@pytest.mark.parametrize(
    ("workload", "gpus", "mesh"),
    [
        ("all-pairs", 8, (2, 4)),
        ("all-pairs", 16, (2, 8)),
        ("all-pairs[dims=1]", 8, (8,)),
        ("all-pairs[dims=3]", 8, (2, 2, 2)),
        ("all-pairs[dims=4]", 16, (2, 2, 2, 2)),
        ("all-pairs[mesh=1x8]", 8, (1, 8)),
        ("all-pairs[mesh=4x2]", 8, (4, 2)),
        ("constructor", 4, (2, 2)),
        ("constructor[mesh=4]", 4, (4,)),
    ],
)
def test_a_mesh_is_the_one_asked_for_or_follows_the_machines(workload, gpus, mesh):
    assert mesh_shape(WorkloadSpec.parse(workload), find_topology(MACHINE, gpus)) == mesh


def test_a_recorded_mesh_is_kept_where_it_takes_as_many_gpus():
    spec = WorkloadSpec("resnet50")
    assert mesh_shape(spec, find_topology(MACHINE, 4), (4, 1)) == (4, 1)
    assert mesh_shape(spec, find_topology(MACHINE, 8), (2, 2)) == (2, 4)
    assert mesh_shape(spec, find_topology(MACHINE, 8), (2, 2, 1)) == (2, 2, 2)
    assert mesh_shape(spec, find_topology(MACHINE, 8), (4,)) == (8,)
    other = WorkloadSpec.parse("resnet50[mesh=4x1]")
    assert mesh_shape(other, find_topology(MACHINE, 4), (2, 2)) == (4, 1)


@pytest.mark.parametrize("workload", ["all-pairs[mesh=2x4]", "resnet50[mesh=2x4]"])
def test_a_mesh_that_takes_other_gpus_says_how_many(workload):
    with pytest.raises(UsageError) as refused:
        problem_of(f"{workload}/{MACHINE}:4")
    assert str(refused.value) == (
        f"The mesh of workload '{workload}' takes 8 GPUs, not 4: ask for so many (-n 8)."
    )


@pytest.mark.parametrize(
    ("workload", "gpus"), [("all-pairs", 1), ("resnet50", 2), ("all-pairs", 7)]
)
def test_gpus_that_make_no_mesh_are_refused_in_one_sentence(workload, gpus):
    with pytest.raises(UsageError) as refused:
        problem_of(f"{workload}/{MACHINE}:{gpus}")
    assert f"{gpus} GPUs" in str(refused.value)
    assert is_a_sentence(str(refused.value))


def test_a_shape_is_four_dimensions_of_64_unless_told_otherwise():
    assert shape(WorkloadSpec("all-pairs")) == (64, 64, 64, 64)
    assert shape(WorkloadSpec.parse("all-pairs[rank=2]")) == (64, 64)
    assert shape(WorkloadSpec.parse("all-pairs[shape=1x3x5]")) == (1, 3, 5)


def test_what_may_be_left_out_has_a_default():
    assert calls(WorkloadSpec("resnet50")) is None
    assert random_conversions(WorkloadSpec("random")) == (1000, 0)
    assert random_conversions(WorkloadSpec.parse("random[conversions=5,seed=3]")) == (5, 3)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("all-pairs[rank=2]/{}:4", {"conversions": 81, "distinct": 81, "mesh": "2x2"}),
        ("all-pairs[shape=2x3]/{}:4", {"conversions": 9, "distinct": 9, "mesh": "2x2"}),
        ("all-pairs[rank=1,dims=3]/{}:8", {"conversions": 64, "distinct": 64, "mesh": "2x2x2"}),
        ("all-pairs-batch/{}:2", {"conversions": 4164, "distinct": 4164, "mesh": "2 meshes"}),
        (
            "random[conversions=300]/{}:1",
            {"conversions": 300, "distinct": 300, "mesh": "6 meshes"},
        ),
        ("resnet50/{}:4", {"conversions": 39_737, "distinct": 2658, "mesh": "2x2"}),
        ("gpt12[calls=1]/{}:4", {"conversions": 1, "distinct": 1, "mesh": "2x2"}),
        ("constructor[model=mlp2]/{}:8", {"model": "mlp2", "mesh": "2x4"}),
    ],
)
def test_facts_begin_with_the_size_and_name_the_mesh(text, facts):
    found = problem_of(text.format(MACHINE)).facts()
    assert found == facts
    assert list(found) == list(facts)


def test_all_pairs_are_all_of_them_once():
    stream = stream_of(f"all-pairs[shape=8x12,mesh=2x4]/{MACHINE}:8")
    assert len(set(stream.queries)) == len(stream.queries) == 8 * 8
    assert list(stream.sequence) == list(range(64))
    assert {query.source for query in stream.queries} == {query.target for query in stream.queries}


def test_more_conversions_than_a_million_are_refused_in_one_sentence():
    with pytest.raises(UsageError) as refused:
        problem_of(f"all-pairs[rank=5,mesh=2x2x2x2]/{MACHINE}:16")
    assert str(refused.value) == (
        "Workload 'all-pairs[rank=5,mesh=2x2x2x2]' makes 1,679,616 conversions, more than "
        "1,000,000; ask for a lower rank or a smaller mesh."
    )
    assert is_a_sentence(str(refused.value))


def test_the_batch_is_four_tensors_at_two_prices():
    drawn = list(batch_of_eight())
    assert len({(query.mesh, query.shape) for query in drawn}) == 8
    assert len({query.shape for query in drawn}) == 4
    assert sum(query.mesh == Mesh.of(*query.mesh.shape) for query in drawn) == 4164 // 2


def test_random_queries_are_drawn_by_their_seed_alone():
    first = list(random_queries(50, 1))
    assert first == list(random_queries(100, 1))[:50]
    assert first != list(random_queries(50, 2))


def test_the_first_calls_of_a_recorded_stream_are_those_that_came_first():
    whole, few = (stream_of(f"{name}/{MACHINE}:4") for name in ("gpt12", "gpt12[calls=500]"))
    assert [few.queries[index] for index in few.sequence] == [
        whole.queries[index] for index in whole.sequence[:500]
    ]
    assert few.recorded is not None
    assert len(few.recorded) == len(few.queries) < 500


@pytest.mark.parametrize(("gpus", "mesh", "left_out"), [(8, "2x4", True), (4, "2x2", False)])
def test_a_recorded_stream_goes_on_other_meshes_less_what_does_not_divide(gpus, mesh, left_out):
    stream = stream_of(f"resnet50/{MACHINE}:{gpus}")
    assert stream.meshes == mesh
    assert len(stream.sequence) + stream.left_out == 39_737
    assert bool(stream.left_out) == left_out
    assert (stream.recorded is None) == left_out
    assert ("left out" in StreamProblem(stream).facts()) == left_out


def test_what_is_left_out_of_the_first_calls_is_counted_among_them():
    stream = stream_of(f"gpt12[calls=5000]/{MACHINE}:8")
    assert len(stream.sequence) + stream.left_out == 5000
    assert stream.left_out


@pytest.mark.parametrize("model", MODELS)
def test_a_constructor_gets_its_model_and_mesh(model):
    found = problem_of(f"constructor[model={model}]/{MACHINE}:4")
    assert found == ConstructorProblem(model, Mesh.of(2, 2))


def test_a_file_is_a_workload(file):
    stream = stream_of(f"{file}[calls=2]/{MACHINE}:8")
    assert (list(stream.sequence), stream.meshes) == ([0, 0], "2x4")
    assert stream_of(f"{file}[mesh=4x2]/{MACHINE}:8").meshes == "4x2"
    assert stream_of(f"{file}/{MACHINE}:4").meshes == "2x2"
    assert stream_path(WorkloadSpec(str(file))) == file
    assert stream_path(WorkloadSpec("random")) is None


def test_a_file_is_labelled_by_its_name_and_content(file):
    spec = WorkloadSpec(str(file), {"calls": "2"})
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    assert str(label(spec)) == f"mine.json.gz#{digest}[calls=2]"
    moved = file.rename(file.with_name("other.json.gz"))
    assert label(WorkloadSpec(str(moved))).name == f"other.json.gz#{digest}"
    moved.write_bytes(moved.read_bytes() + b" ")
    assert digest not in label(WorkloadSpec(str(moved))).name


def test_a_file_that_is_not_there_is_an_error_of_that_file():
    for use in (label, lambda spec: problem_of(f"{spec}/{MACHINE}:4")):
        with pytest.raises(UsageError) as refused:
            use(WorkloadSpec("none.json.gz"))
        assert str(refused.value) == "none.json.gz cannot be read: No such file or directory."


def test_recorded_streams_are_where_their_workloads_look():
    for name in RECORDED:
        path = stream_path(WorkloadSpec(name))
        assert path is not None
        assert path.is_file()


def test_the_list_says_how_many_conversions_there_are():
    summaries = {each.name: each.summary for each in list_workloads()}
    for name in RECORDED:
        calls_made = len(stream_of(f"{name}/{MACHINE}:4").sequence)
        assert f"{calls_made:,} conversions" in summaries[name]


def test_the_models_are_those_that_the_driver_has():
    from planners.dimspec.upstream import models

    assert set(models.MODELS) == set(MODELS)

"""Workloads are checked before a problem is built, and meshes follow the workload."""

import hashlib
from pathlib import Path

import pytest
from small_streams import problem_of, refusal, stream_of, write_stream

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from planners.dimspec.conversion.partition import Mesh
from planners.dimspec.conversion.stream import batch_of_eight, random_queries
from planners.dimspec.problem import StreamProblem
from planners.dimspec.workloads import MODELS, RECORDED, WORKLOADS, label

MACHINE = "dgx_a100_80gb"
NAMES = [workload.name for workload in WORKLOADS]


@pytest.fixture
def file(tmp_path) -> Path:
    query = {"shape": [8, 8], "src": [], "dst": [[0, [0]]]}
    document = {"mesh_shape": [2, 4], "queries": [query], "sequence": [0, 0, 0]}
    return write_stream(tmp_path / "mine.json.gz", document)


@pytest.mark.parametrize("name", NAMES)
def test_every_listed_workload_is_valid_as_it_is(name):
    spec = WorkloadSpec(name)
    assert label(spec) is spec


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("all-pairs[rank=7]", "'rank'"),
        ("all-pairs[dims=5]", "'dims'"),
        ("all-pairs[shape=1x2x3x4x5x6x7]", "'shape'"),
        ("all-pairs[mesh=2x2x2x1x1]", "'mesh'"),
        ("random[conversions=1000001]", "'conversions'"),
        ("random[seed=-1]", "'seed'"),
        ("resnet50[calls=0]", "'calls'"),
        ("mine.json.gz[mesh=two]", "'mesh'"),
        ("constructor[model=gpt2]", ", ".join(sorted(MODELS))),
        ("all-pairs[rank=3,shape=8x8]", "'rank' and 'shape' exclude each other"),
        ("all-pairs[mesh=2x4,dims=2]", "'mesh' and 'dims' exclude each other"),
        ("constructor[dims=2,mesh=2x4]", "'mesh' and 'dims' exclude each other"),
        ("all-pair", "did you mean all-pairs or all-pairs-batch?"),
        ("all-pairs-batch[rank=3]", "known are: none"),
        ("resnet50[dims=2]", "known are: calls, mesh"),
        ("mine.json.gz[rank=2]", "known are: calls, mesh"),
    ],
)
def test_what_is_wrong_is_named_in_one_sentence(workload, said):
    assert said in refusal(UsageError, label, WorkloadSpec.parse(workload))


def test_an_unknown_name_is_answered_with_all_that_is_allowed():
    said = refusal(UsageError, label, WorkloadSpec("nothing-alike-it"))
    assert all(name in said for name in (*NAMES, "FILE.json.gz"))


@pytest.mark.parametrize(
    ("workload", "gpus", "mesh"),
    [
        ("all-pairs[rank=1]", 8, "2x4"),
        ("all-pairs[rank=1]", 16, "2x8"),
        ("all-pairs[rank=1,dims=1]", 8, "8"),
        ("all-pairs[rank=1,dims=3]", 8, "2x2x2"),
        ("all-pairs[rank=1,dims=4]", 16, "2x2x2x2"),
        ("all-pairs[rank=1,mesh=1x8]", 8, "1x8"),
        ("all-pairs[rank=1,mesh=4x2]", 8, "4x2"),
        ("resnet50[calls=9]", 4, "2x2"),
        ("resnet50[calls=9]", 8, "2x4"),
        ("resnet50[calls=9,mesh=4x1]", 4, "4x1"),
    ],
)
def test_a_mesh_is_the_one_asked_for_or_recorded_or_follows_the_machines(workload, gpus, mesh):
    assert problem_of(f"{workload}/{MACHINE}:{gpus}").facts()["mesh"] == mesh


@pytest.mark.parametrize(
    ("recorded", "gpus", "mesh"),
    [([4, 1], 4, "4x1"), ([2, 2, 1], 8, "2x2x2"), ([4], 8, "8"), ([4, 1], 8, "2x4")],
)
def test_another_number_of_gpus_keeps_the_dimensions_of_the_recorded_mesh(
    recorded, gpus, mesh, tmp_path
):
    query = {"shape": [64, 64], "src": [], "dst": [[0, [0]]]}
    document = {"mesh_shape": recorded, "queries": [query], "sequence": [0]}
    path = write_stream(tmp_path / "recorded.json.gz", document)
    assert stream_of(f"{path}/{MACHINE}:{gpus}").meshes == mesh


@pytest.mark.parametrize(
    ("workload", "gpus", "said"),
    [
        ("all-pairs[mesh=2x4]", 4, "takes 8 GPUs, not 4"),
        ("resnet50[mesh=2x4]", 4, "(-n 8)"),
        ("all-pairs", 1, "1 GPUs"),
        ("resnet50", 2, "2 GPUs"),
        ("all-pairs", 7, "7 GPUs"),
        ("all-pairs[rank=5,mesh=2x2x2x2]", 16, "1,679,616 conversions"),
    ],
)
def test_a_mesh_or_a_size_that_is_not_possible_is_refused(workload, gpus, said):
    assert said in refusal(UsageError, problem_of, f"{workload}/{MACHINE}:{gpus}")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("all-pairs[rank=2]/{}:4", {"conversions": 81, "distinct": 81, "mesh": "2x2"}),
        ("all-pairs[shape=2x3]/{}:4", {"conversions": 9, "distinct": 9, "mesh": "2x2"}),
        ("all-pairs[rank=1,dims=3]/{}:8", {"conversions": 64, "distinct": 64, "mesh": "2x2x2"}),
        ("all-pairs/{}:4", {"conversions": 625, "distinct": 625, "mesh": "2x2"}),
        ("all-pairs-batch/{}:2", {"conversions": 4164, "distinct": 4164, "mesh": "2 meshes"}),
        (
            "random[conversions=300]/{}:1",
            {"conversions": 300, "distinct": 300, "mesh": "6 meshes"},
        ),
        ("resnet50/{}:4", {"conversions": 39_737, "distinct": 2658, "mesh": "2x2"}),
        ("gpt12[calls=1]/{}:4", {"conversions": 1, "distinct": 1, "mesh": "2x2"}),
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


def test_the_batch_is_four_tensors_at_two_prices():
    drawn = list(batch_of_eight())
    assert len({(query.mesh, query.shape) for query in drawn}) == 8
    assert len({query.shape for query in drawn}) == 4
    assert sum(query.mesh == Mesh.of(*query.mesh.shape) for query in drawn) == 4164 // 2


def test_random_queries_are_drawn_by_their_seed_alone():
    first = list(random_queries(50, 1))
    assert first == list(random_queries(100, 1))[:50]
    assert first != list(random_queries(50, 2))


@pytest.mark.parametrize(("gpus", "mesh", "left_out"), [(8, "2x4", True), (4, "2x2", False)])
def test_a_recorded_stream_goes_on_other_meshes_less_what_does_not_divide(gpus, mesh, left_out):
    stream = stream_of(f"resnet50/{MACHINE}:{gpus}")
    assert stream.meshes == mesh
    assert len(stream.sequence) + stream.left_out == 39_737
    assert bool(stream.left_out) == left_out
    assert (stream.recorded is None) == left_out
    assert ("left out" in StreamProblem(stream).facts()) == left_out


@pytest.mark.parametrize("model", MODELS)
def test_a_constructor_gets_its_model_and_mesh(model):
    found = problem_of(f"constructor[model={model}]/{MACHINE}:4")
    assert found.facts == {"model": model, "mesh": "2x2"}


def test_a_file_is_a_workload(file):
    stream = stream_of(f"{file}[calls=2]/{MACHINE}:8")
    assert (list(stream.sequence), stream.meshes) == ([0, 0], "2x4")
    assert stream_of(f"{file}[mesh=4x2]/{MACHINE}:8").meshes == "4x2"
    assert stream_of(f"{file}/{MACHINE}:4").meshes == "2x2"


def test_a_file_is_labelled_by_its_name_and_content(file):
    spec = WorkloadSpec(str(file), {"calls": "2"})
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    assert str(label(spec)) == f"mine.json.gz#{digest}[calls=2]"
    moved = file.rename(file.with_name("other.json.gz"))
    assert label(WorkloadSpec(str(moved))).name == f"other.json.gz#{digest}"
    moved.write_bytes(moved.read_bytes() + b" ")
    assert digest not in label(WorkloadSpec(str(moved))).name


def test_a_file_that_is_not_there_is_an_error_of_that_file():
    spec = WorkloadSpec("none.json.gz")
    for use in (lambda: label(spec), lambda: problem_of(f"{spec}/{MACHINE}:4")):
        assert refusal(UsageError, use).startswith("none.json.gz cannot be read: ")


def test_the_list_says_how_many_conversions_there_are():
    summaries = {workload.name: workload.summary for workload in WORKLOADS}
    for name in RECORDED:
        calls_made = len(stream_of(f"{name}/{MACHINE}:4").sequence)
        assert f"{calls_made:,} conversions" in summaries[name]


def test_the_models_are_those_that_the_driver_has():
    from planners.dimspec.upstream import models

    assert set(models.MODELS) == set(MODELS)

"""Workloads are checked before a problem is built, and meshes follow the workload."""

import pytest
from small_streams import problem_of

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from planners.dimspec.conversion.steps import Mesh
from planners.dimspec.implementation import facts, inventory
from planners.dimspec.problem import batch_of_eight, random_queries
from planners.dimspec.workloads import MODELS, WORKLOADS, label

MACHINE = "dgx_a100_80gb"


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("all-pairs[rank=7]", "'rank'"),
        ("all-pairs[dims=5]", "'dims'"),
        ("all-pairs[shape=1x2x3x4x5x6x7]", "'shape'"),
        ("all-pairs[mesh=2x2x2x1x1]", "'mesh'"),
        ("random[conversions=1000001]", "'conversions'"),
        ("resnet50[calls=0]", "'calls'"),
        ("constructor[model=gpt2]", ", ".join(sorted(MODELS))),
        ("all-pairs[rank=3,shape=8x8]", "'rank' and 'shape' exclude each other"),
        ("constructor[dims=2,mesh=2x4]", "'mesh' and 'dims' exclude each other"),
        ("all-pair", "did you mean all-pairs or all-pairs-batch?"),
        ("all-pairs-batch[rank=3]", "known are: none"),
        ("nothing-like-it", "known are: all-pairs, all-pairs-batch, constructor, gpt12"),
        ("mine.json.gz", "mine.json.gz"),
    ],
)
def test_a_wrong_workload_is_refused(workload, said):
    """The sentence names the parameter or the known names."""
    with pytest.raises(UsageError) as refused:
        label(WorkloadSpec.parse(workload))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("workload", "gpus", "said"),
    [
        ("all-pairs[mesh=2x4]", 4, "takes 8 GPUs, not 4"),
        ("resnet50[mesh=2x4]", 4, "(-n 8)"),
        ("all-pairs", 7, "7 GPUs"),
        ("resnet50[calls=1,mesh=1024x1]", 1024, "possible on mesh 1024x1"),
        ("all-pairs[rank=5,mesh=2x2x2x2]", 16, "1,679,616 conversions"),
    ],
)
def test_an_impossible_mesh_or_size_is_refused(workload, gpus, said):
    """The problem is not built."""
    with pytest.raises(UsageError) as refused:
        problem_of(f"{workload}/{MACHINE}:{gpus}")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("workload", "gpus", "mesh"),
    [
        ("all-pairs[rank=1]", 8, "2x4"),
        ("all-pairs[rank=1,dims=4]", 16, "2x2x2x2"),
        ("all-pairs[rank=1,mesh=1x8]", 8, "1x8"),
        ("resnet50[calls=9]", 4, "2x2"),
        ("resnet50[calls=9]", 8, "2x4"),
        ("resnet50[calls=9,mesh=4x1]", 4, "4x1"),
    ],
)
def test_the_mesh_is_of_the_workload_or_recorded_or_of_the_machines(workload, gpus, mesh):
    """A recorded mesh needs as many GPUs as the topology has."""
    assert facts(problem_of(f"{workload}/{MACHINE}:{gpus}"))["mesh"] == mesh


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_a_problem_of_the_library(model):
    """ColossalAI builds the strategies itself; the driver has all models."""
    from planners.dimspec.upstream.models import MODELS as OF_DRIVER

    problem = problem_of(f"constructor[model={model}]/{MACHINE}:8")
    assert problem.facts == {"model": model, "mesh": "2x4"}
    assert set(OF_DRIVER) == set(MODELS)


@pytest.mark.parametrize(
    ("text", "conversions", "distinct", "mesh"),
    [
        ("all-pairs/{}:4", 625, 625, "2x2"),
        ("all-pairs-batch/{}:2", 4164, 4164, "2 meshes"),
        ("random[conversions=300]/{}:1", 300, 300, "6 meshes"),
        ("resnet50/{}:4", 39_737, 2658, "2x2"),
        ("gpt12/{}:4", 96_145, 1410, "2x2"),
    ],
)
def test_facts_begin_with_the_size(text, conversions, distinct, mesh):
    """The list of workloads names the sizes of the recorded streams."""
    found = facts(problem_of(text.format(MACHINE)))
    assert found == {"conversions": conversions, "distinct": distinct, "mesh": mesh}
    assert next(iter(found)) == "conversions"
    summaries = {workload.name: workload.summary for workload in WORKLOADS}
    if conversions > 10_000:
        assert f"{conversions:,} conversions" in summaries[text.partition("/")[0]]


def test_a_recorded_stream_on_another_mesh_lacks_what_does_not_divide():
    """The calls left out are counted, and no answers are recorded for that mesh."""
    stream = problem_of(f"resnet50/{MACHINE}:8")
    assert stream.recorded is None
    assert stream.left_out > 0
    assert len(stream.sequence) + stream.left_out == 39_737
    assert set(stream.sequence) == set(range(len(stream.queries)))
    assert facts(stream)["left out"] == stream.left_out
    assert problem_of(f"resnet50/{MACHINE}:4").left_out == 0


def test_the_inventory_counts_distinct_conversions():
    """A recorded stream needs no topology; all pairs need a mesh."""
    listed = inventory(WorkloadSpec.parse("resnet50"), None)
    assert len(listed.rows) == 2658
    assert sum(row[listed.place("asked")] for row in listed.rows) == 39_737
    for workload, said in (("all-pairs", "depends on the machines"), ("constructor", "is a model")):
        with pytest.raises(UsageError, match=said):
            inventory(WorkloadSpec.parse(workload), None)


def test_generated_queries_are_as_described():
    """The batch has four tensors at two prices, and random queries follow their seed."""
    batch = list(batch_of_eight())
    assert len({(query.mesh, query.shape) for query in batch}) == 8
    assert sum(query.mesh == Mesh.of(*query.mesh.shape) for query in batch) == 4164 // 2
    drawn = list(random_queries(1000, seed=1))
    assert drawn[:50] == list(random_queries(50, seed=1)) != list(random_queries(50, seed=2))
    assert {len(query.shape) for query in drawn} == set(range(1, 7))
    assert any(list(query.source) != sorted(query.source) for query in drawn)

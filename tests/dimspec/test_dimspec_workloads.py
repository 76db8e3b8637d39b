"""Workloads are checked before a problem is built, and meshes follow the workload."""

import pytest
from small_streams import problem_of

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from planners.dimspec.conversion.steps import Mesh
from planners.dimspec.implementation import facts, inventory
from planners.dimspec.problem import batch_of_eight, random_queries
from planners.dimspec.workloads import MODELS, WORKLOADS

MACHINE = "dgx_a100_80gb"


@pytest.mark.parametrize(
    ("workload", "gpus", "said"),
    [
        ("all-pairs[rank=7]", 4, "'rank'"),
        ("all-pairs[shape=1x2x3x4x5x6x7]", 4, "'shape'"),
        ("all-pairs[mesh=2x2x2x1x1]", 4, "'mesh'"),
        ("random[conversions=1000001]", 4, "'conversions'"),
        ("resnet50[calls=0]", 4, "'calls'"),
        ("constructor[model=gpt2]", 4, ", ".join(sorted(MODELS))),
        ("all-pairs[rank=3,shape=8x8]", 4, "'rank' and 'shape' exclude each other"),
        ("all-pair", 4, "did you mean all-pairs or all-pairs-batch?"),
        ("all-pairs-batch[rank=3]", 4, "known are: none"),
        ("nothing-like-it", 4, "known are: all-pairs, all-pairs-batch, constructor, gpt12"),
        ("mine.json.gz", 4, "mine.json.gz"),
        ("all-pairs[mesh=2x4]", 4, "takes 8 GPUs, not 4: ask for 8 (-n 8)"),
        ("all-pairs", 7, "7 GPUs"),
        ("all-pairs[rank=5,mesh=2x2x2x2]", 16, "1,679,616 conversions"),
    ],
)
def test_an_impossible_workload_is_refused(workload, gpus, said):
    """The sentence names the parameter, the mesh or the known names."""
    with pytest.raises(UsageError) as refused:
        problem_of(f"{workload}/{MACHINE}:{gpus}")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "conversions", "distinct", "mesh"),
    [
        ("all-pairs/{}:4", 625, 625, "2x2"),
        ("all-pairs[rank=1]/{}:8", 16, 16, "2x4"),
        ("all-pairs[rank=1,mesh=1x8]/{}:8", 16, 16, "1x8"),
        ("all-pairs-batch/{}:2", 4164, 4164, "2 meshes"),
        ("random[conversions=300]/{}:1", 300, 300, "6 meshes"),
        ("resnet50[calls=300]/{}:4", 300, 115, "2x2"),
        ("resnet50/{}:8", 39_737, 2658, "2x2"),
        ("gpt12/{}:4", 96_145, 1410, "2x2"),
    ],
)
def test_facts_begin_with_the_size(text, conversions, distinct, mesh):
    """The list of workloads names the sizes of the recorded streams, which have their own mesh."""
    stream = problem_of(text.format(MACHINE))
    assert list(facts(stream).values()) == [conversions, distinct, mesh]
    assert next(iter(facts(stream))) == "conversions"
    assert set(stream.sequence) == set(range(len(stream.queries)))
    summaries = {workload.name: workload.summary for workload in WORKLOADS}
    if conversions > 10_000:
        assert f"{conversions:,} conversions" in summaries[text.partition("/")[0]]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_a_problem_of_the_library(model):
    """ColossalAI builds the strategies itself; the driver has all models."""
    from planners.dimspec.upstream.models import MODELS as OF_DRIVER

    problem = problem_of(f"constructor[model={model}]/{MACHINE}:8")
    assert problem.facts == {"model": model, "mesh": "2x4"}
    assert set(OF_DRIVER) == set(MODELS)


def test_the_inventory_counts_distinct_conversions():
    """A recorded stream needs no topology; all pairs need a mesh; a model has no table."""
    listed = inventory(WorkloadSpec.parse("resnet50"), None)
    assert len(listed.rows) == 2658
    assert sum(row[listed.place("asked")] for row in listed.rows) == 39_737
    assert len(inventory(WorkloadSpec.parse("all-pairs[rank=1,mesh=2x2]"), None).rows) == 16
    refused = {"all-pairs": "depends on the machines", "constructor[mesh=2x2]": "is a model"}
    for workload, said in refused.items():
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

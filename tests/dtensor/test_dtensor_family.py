"""The family is found by its entry point, and all variants and problems that it lists exist."""

import pytest
from small_world import problem_of

from harness.contract.registry import load_registry
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY
from planners.dtensor.suite import LADDER
from planners.dtensor.workloads import WORKLOADS, mesh_shape, parameters_of


def test_it_is_found_through_its_entry_point():
    assert load_registry().find("dtensor") is FAMILY


def test_the_published_ladder_begins_with_the_reference_and_ends_with_torch_as_it_is():
    assert FAMILY.reference.name == LADDER[0]
    models = [variant.name for variant in FAMILY.models_of(FAMILY.find("upstream"))]
    assert models == list(LADDER[-2::-1])


def test_all_its_problems_exist():
    for text in (*FAMILY.benchmarks, *(study.problem for study in FAMILY.studies)):
        problem = ProblemId.parse(text)
        topology = find_topology(problem.topology, problem.gpus)
        asked = parameters_of(problem.workload)
        assert mesh_shape(topology, getattr(asked, "dims", 1))


def test_all_variants_of_its_studies_exist():
    for study in FAMILY.studies:
        assert [FAMILY.find(name).name for name in study.variants] == list(study.variants)


@pytest.mark.parametrize(
    ("problem", "facts"),
    [
        ("ops/dgx_a100_80gb:8", (160, "8", 8, "warm")),
        ("ops[op=mm+t,dims=2]/dgx_a100_80gb:16", (40, "2 x 8", 8, "warm")),
        ("miss[dims=3]/dgx_a100_80gb:8", (8, "2 x 2 x 2", 8, "cold")),
        ("miss[cases=7]/dgx_a100_80gb:8", (7, "8", 8, "cold")),
        ("optimizer[params=3]/dgx_a100_80gb:16", (3, "16", 8, "warm")),
        ("mlp/dgx_a100_80gb:16", (4, "8", 8, "warm")),
    ],
)
def test_facts_begin_with_the_size_and_say_where_it_runs(problem, facts):
    found = problem_of(problem).facts()
    assert tuple(found) == ("ops", "mesh", "ranks per host", "caches")
    assert tuple(found.values()) == facts


def test_each_workload_has_a_result_for_each_name():
    for workload in WORKLOADS[:-1]:  # the last is a user's own step
        program = problem_of(f"{workload.name}/dgx_a100_80gb:4").program
        assert len(program.step()) == len(program.names)

"""Workloads are checked before anything is built, and meshes follow the machines."""

import pytest

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dtensor.workloads import OPS, WORKLOADS, mesh_shape, parameters_of

MACHINE = "dgx_a100_80gb"


@pytest.mark.parametrize("workload", [each.name for each in WORKLOADS])
def test_every_listed_workload_is_valid_as_it_is(workload):
    assert parameters_of(WorkloadSpec(workload)).dims == 1


def test_all_ops_run_unless_some_are_named():
    assert parameters_of(WorkloadSpec("ops")).ops == OPS
    assert parameters_of(WorkloadSpec.parse("ops[op=t]")).ops == ("t",)
    assert parameters_of(WorkloadSpec.parse("miss[op=mm+view-sharded]")).ops == (
        "mm",
        "view-sharded",
    )


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("opts", "Unknown workload of family 'dtensor', 'opts'; did you mean ops?"),
        ("mlp[dims=2]", "Unknown parameter of workload 'mlp', 'dims'; known are: none."),
        (
            "dynamic[dim=2]",
            "Unknown parameter of workload 'dynamic', 'dim'; did you mean dims?",
        ),
        (
            "ops[op=mmm]",
            "Parameter 'op' of workload 'ops[op=mmm]' must be some of addmm, mm, mul, relu, "
            "add-scalar, view, view-sharded, t, joined by +, not 'mmm'.",
        ),
        (
            "ops[op=mm+]",
            "Parameter 'op' of workload 'ops[op=mm+]' must be some of addmm, mm, mul, relu, "
            "add-scalar, view, view-sharded, t, joined by +, not 'mm+'.",
        ),
        (
            "optimizer[impl=slow]",
            "Parameter 'impl' of workload 'optimizer[impl=slow]' must be one of single, foreach, "
            "fused, not 'slow'.",
        ),
        (
            "optimizer[rule=sgd,impl=fused]",
            "Parameter 'impl' of workload 'optimizer[rule=sgd,impl=fused]' must be single or "
            "foreach with rule=sgd: torch has no fused one for DTensors.",
        ),
        (
            "optimizer[params=0]",
            "Parameter 'params' of workload 'optimizer[params=0]' must be a whole number from "
            "1 to 10,000, not '0'.",
        ),
        (
            "ops[dims=5]",
            "Parameter 'dims' of workload 'ops[dims=5]' must be a whole number from 1 to 4, not "
            "'5'.",
        ),
        (
            "miss[cases=none]",
            "Parameter 'cases' of workload 'miss[cases=none]' must be a whole number from 1 to "
            "10,000, not 'none'.",
        ),
        (
            "miss[op=mm,cases=3]",
            "Parameters 'op' and 'cases' of workload 'miss[op=mm,cases=3]' exclude each other.",
        ),
        (
            "miss[seed=3]",
            "Parameter 'seed' of workload 'miss[seed=3]' must come with 'cases', how many to draw.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(workload, said):
    with pytest.raises(UsageError) as refused:
        parameters_of(WorkloadSpec.parse(workload))
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("gpus", "shapes"),
    [
        (8, [(8,), (2, 4), (2, 2, 2)]),
        (16, [(16,), (2, 8), (2, 2, 4), (2, 2, 2, 2)]),
        (6, [(6,), (2, 3)]),
        (24, [(24,), (3, 8), (3, 2, 4), (3, 2, 2, 2)]),
    ],
)
def test_a_mesh_has_hosts_first_and_splits_their_gpus_in_the_rest(gpus, shapes):
    topology = find_topology(MACHINE, gpus)
    assert [mesh_shape(topology, ndim + 1) for ndim in range(len(shapes))] == shapes


def test_hosts_that_share_a_fast_domain_count_as_one():
    assert mesh_shape(find_topology("gb200_nvl72_tray4", 8), 2) == (2, 4)
    assert mesh_shape(find_topology("gb200_nvl72_tray4", 144), 2) == (2, 72)


@pytest.mark.parametrize(
    ("gpus", "ndim", "said"),
    [
        (512, 1, "The dtensor family runs up to 256 ranks in one process, not 512."),
        (
            7,
            2,
            "7 GPUs in hosts of 7 do not make a mesh of 2 dimensions with at least 2 GPUs in each.",
        ),
        (
            8,
            4,
            "8 GPUs in hosts of 8 do not make a mesh of 4 dimensions with at least 2 GPUs in each.",
        ),
    ],
)
def test_a_mesh_that_is_not_possible_is_refused(gpus, ndim, said):
    with pytest.raises(UsageError) as refused:
        mesh_shape(find_topology(MACHINE, gpus), ndim)
    assert str(refused.value) == said


def test_a_mesh_has_one_dimension_unless_told_otherwise():
    assert parameters_of(WorkloadSpec("dynamic")).dims == 1
    assert parameters_of(WorkloadSpec.parse("dynamic[dims=3]")).dims == 3

"""Workloads are checked before anything is built, and meshes follow the machines."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dtensor.decision import fingerprint
from planners.dtensor.problem import build
from planners.dtensor.workloads import (
    OPS,
    OPTIMIZERS,
    WORKLOADS,
    mesh_shape,
    parameters_of,
)

MACHINE = "dgx_a100_80gb"


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_listed_workload_is_valid_as_it_is(workload):
    parameters_of(WorkloadSpec(workload.name))


def test_all_ops_run_unless_some_are_named():
    assert parameters_of(WorkloadSpec("ops")).op == OPS
    assert parameters_of(WorkloadSpec.parse("ops[op=t]")).op == ("t",)
    assert parameters_of(WorkloadSpec.parse("miss[op=mm+view-sharded]")).op == (
        "mm",
        "view-sharded",
    )


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("opts", "did you mean ops?"),
        ("mlp[dims=2]", "known are: device"),
        ("ops[op=mmm]", "'op'"),
        ("ops[dims=5]", "from 1 to 4"),
        ("optimizer[impl=slow]", ", ".join(sorted(OPTIMIZERS))),
        ("optimizer[params=10001]", "from 1 to 10,000"),
        ("optimizer[rule=sgd,impl=fused]", "'impl' must be single or foreach with rule=sgd"),
        ("miss[cases=none]", "'cases'"),
        ("miss[op=mm,cases=3]", "'op' and 'cases' exclude each other"),
        ("miss[seed=3]", "'seed' must come with 'cases'"),
        ("my_step.py", "known are: FILE.py:FUNCTION, "),
        ("my_step.py:step[caches=hot]", "cold, warm"),
    ],
)
def test_what_is_wrong_is_named(workload, said):
    with pytest.raises(UsageError) as refused:
        parameters_of(WorkloadSpec.parse(workload))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("machine", "gpus", "shapes"),
    [
        (MACHINE, 8, [(8,), (2, 4), (2, 2, 2)]),
        (MACHINE, 16, [(16,), (2, 8), (2, 2, 4), (2, 2, 2, 2)]),
        (MACHINE, 6, [(6,), (2, 3)]),
        (MACHINE, 24, [(24,), (3, 8), (3, 2, 4), (3, 2, 2, 2)]),
        # Hosts that share a fast domain count as one.
        ("gb200_nvl72_tray4", 8, [(8,), (2, 4)]),
        ("gb200_nvl72_tray4", 144, [(144,), (2, 72)]),
    ],
)
def test_a_mesh_has_hosts_first_and_splits_their_gpus_in_the_rest(machine, gpus, shapes):
    topology = find_topology(machine, gpus)
    assert [mesh_shape(topology, ndim + 1) for ndim in range(len(shapes))] == shapes


@pytest.mark.parametrize(
    ("gpus", "ndim", "said"),
    [
        (512, 1, "up to 256 ranks in one process, not 512"),
        (7, 2, "7 GPUs in hosts of 7 do not make a mesh of 2 dimensions"),
        (8, 4, "8 GPUs in hosts of 8 do not make a mesh of 4 dimensions"),
    ],
)
def test_a_mesh_that_is_not_possible_is_refused(gpus, ndim, said):
    with pytest.raises(UsageError) as refused:
        mesh_shape(find_topology(MACHINE, gpus), ndim)
    assert said in str(refused.value)


def test_a_mesh_has_one_dimension_unless_another_number_is_given():
    assert parameters_of(WorkloadSpec("dynamic")).dims == 1
    assert parameters_of(WorkloadSpec.parse("dynamic[dims=3]")).dims == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("workload", ["mlp[device=cuda]", "ops[op=mm,device=cuda]"])
def test_tensors_on_a_gpu_need_one(workload):
    topology = find_topology("dgx_h100", 8)
    with pytest.raises(UsageError, match="device=cuda needs a GPU"):
        build(WorkloadSpec.parse(workload), topology)


@pytest.mark.parametrize(
    ("workload", "cuda", "may_fork"),
    [("ops[op=mm]", "13.0", True), ("mlp", None, True), ("mlp", "13.0", False)],
)
def test_a_backward_pass_cannot_be_forked_with_a_build_for_cuda(
    workload, cuda, may_fork, monkeypatch
):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    problem = build(WorkloadSpec.parse(workload), find_topology(MACHINE, 8))
    assert problem.under("dispatch.base:Dispatch").may_fork is may_fork


def test_a_program_on_a_gpu_cannot_be_forked():
    program = build(WorkloadSpec("mlp"), find_topology(MACHINE, 8)).program
    assert not replace(program, mesh=SimpleNamespace(device_type="cuda")).may_fork


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_values_on_a_gpu_are_part_of_a_fingerprint():
    problem = build(WorkloadSpec.parse("ops[op=mm,device=cuda]"), find_topology(MACHINE, 8))
    prepared = problem.under("dispatch.base:Dispatch")
    with prepared.installed():
        assert fingerprint(prepared.run()) == fingerprint(prepared.run())

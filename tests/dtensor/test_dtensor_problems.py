"""The problems that the family lists exist, and wrong ones are refused before anything is built."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from small_world import problem_of

from harness.contract import UsageError, WorkloadSpec
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY
from planners.dtensor.decision import fingerprint
from planners.dtensor.workloads import OPTIMIZERS, WORKLOADS, mesh_shape, parameters_of

MACHINE = "dgx_a100_80gb"


def test_all_problems_and_variants_that_it_lists_exist():
    """Benchmarks and studies name possible problems and known variants."""
    for text in (*FAMILY.benchmarks, *(study.problem for study in FAMILY.studies)):
        problem = ProblemId.parse(text)
        topology = find_topology(problem.topology, problem.gpus)
        assert mesh_shape(topology, getattr(parameters_of(problem.workload), "dims", 1))
    for study in FAMILY.studies:
        assert [FAMILY.find(name).name for name in study.variants] == list(study.variants)


def test_each_workload_has_a_result_for_each_name():
    """A program's step returns as many results as it has names, also on 6 GPUs."""
    for workload in WORKLOADS[:-1]:  # the last is a user's own step
        layers = "[layers=1]" if workload.name == "fsdp2-step" else ""
        program = problem_of(f"{workload.name}{layers}/{MACHINE}:6").program
        assert len(program.step()) == len(program.names)


@pytest.mark.parametrize(
    ("problem", "facts"),
    [
        ("ops[op=mm+t,dims=2]/dgx_a100_80gb:16", (40, "2 x 8", 8, "warm")),
        ("miss[dims=3]/dgx_a100_80gb:8", (8, "2 x 2 x 2", 8, "cold")),
        ("miss[cases=7]/dgx_a100_80gb:8", (7, "8", 8, "cold")),
        ("optimizer[params=3]/dgx_a100_80gb:16", (3, "16", 8, "warm")),
        ("mlp/dgx_a100_80gb:16", (4, "8", 8, "warm")),
    ],
)
def test_facts_begin_with_the_size_and_say_where_it_runs(problem, facts):
    """The facts are the number of ops, the mesh, the ranks of a host, and the caches."""
    found = problem_of(problem).facts()
    assert tuple(found) == ("ops", "mesh", "ranks per host", "caches")
    assert tuple(found.values()) == facts


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
def test_wrong_workloads_are_refused(workload, said):
    """The error names the parameter and the values that it may have."""
    with pytest.raises(UsageError) as refused:
        parameters_of(WorkloadSpec.parse(workload))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("machine", "gpus", "shapes"),
    [
        (MACHINE, 24, [(24,), (3, 8), (3, 2, 4), (3, 2, 2, 2)]),
        # Hosts that share a fast domain count as one.
        ("gb200_nvl72_tray4", 144, [(144,), (2, 72)]),
    ],
)
def test_a_mesh_has_hosts_first_and_splits_their_gpus_in_the_rest(machine, gpus, shapes):
    """The shape of a mesh follows from the machines and the number of dimensions."""
    topology = find_topology(machine, gpus)
    assert [mesh_shape(topology, ndim + 1) for ndim in range(len(shapes))] == shapes


@pytest.mark.parametrize(
    ("gpus", "ndim", "said"),
    [(512, 1, "up to 256 ranks"), (7, 2, "7 GPUs in hosts of 7"), (8, 4, "8 GPUs in hosts of 8")],
)
def test_a_mesh_that_is_not_possible_is_refused(gpus, ndim, said):
    """The error names the ranks, the hosts and the dimensions."""
    with pytest.raises(UsageError, match=said):
        mesh_shape(find_topology(MACHINE, gpus), ndim)


@pytest.mark.parametrize(
    ("workload", "cuda", "may_fork"),
    [("ops[op=mm]", "13.0", True), ("mlp", None, True), ("mlp", "13.0", False)],
)
def test_a_backward_pass_cannot_be_forked_with_a_build_for_cuda(
    workload, cuda, may_fork, monkeypatch
):
    """A build for CUDA refuses a backward pass in a fork, and a GPU refuses any program."""
    monkeypatch.setattr(torch.version, "cuda", cuda)
    program = problem_of(f"{workload}/{MACHINE}:8").program
    assert program.may_fork is may_fork
    assert not replace(program, mesh=SimpleNamespace(device_type="cuda")).may_fork


@pytest.mark.parametrize("workload", ["mlp[device=cuda]", "ops[op=mm,device=cuda]"])
def test_tensors_on_a_gpu_need_one(workload):
    """Where there is a GPU, values on it are part of a fingerprint, and elsewhere it is refused."""
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="device=cuda needs a GPU"):
            problem_of(f"{workload}/{MACHINE}:8")
        return
    prepared = problem_of(f"{workload}/{MACHINE}:8").under()
    with prepared.installed():
        assert fingerprint(prepared.run()) == fingerprint(prepared.run())

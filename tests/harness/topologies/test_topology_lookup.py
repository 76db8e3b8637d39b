"""The topology of a problem is the named one, or the one stored in its workload."""

from dataclasses import replace

import pytest
from toy import TOY

from harness.contract import Study
from harness.contract.registry import Registry
from harness.gate.expectations import Expectation, Expectations, expected_problems
from harness.model.errors import UsageError
from harness.model.ids import CellId, WorkloadSpec
from harness.model.topology import captured_topology
from harness.suites.declared import registered_requests
from harness.topologies.lookup import find_topology, placed_on
from shardbench.problem_options import find_problem

BRINGS = WorkloadSpec("brings")


def brings(workload):
    return captured_topology(6, 3) if workload.name == "brings" else None


FAMILY = replace(TOY, variants=dict(TOY.variants), brings=brings)
REGISTRY = Registry([FAMILY])


def test_a_workload_brings_its_machines_unless_others_are_named():
    for name, gpus in ((None, None), (None, 6), ("captured", None), ("captured", 6)):
        assert placed_on(FAMILY, BRINGS, name, gpus) == captured_topology(6, 3)
    assert placed_on(FAMILY, BRINGS, "dgx_h100", 16) == find_topology("dgx_h100", 16)


@pytest.mark.parametrize(
    ("workload", "name", "gpus", "said"),
    [
        ("toy", None, None, "name one with --topology"),
        ("toy", "captured", 6, "brings no topology of its own"),
        ("brings", "captured", 7, "captured on 6 GPUs, not on 7"),
        ("brings", None, 7, "captured on 6 GPUs, not on 7"),
        ("brings", "dgx_h100", None, "with --gpus how many"),
        ("brings", "dgx_h1000", 8, "Unknown topology"),
    ],
)
def test_anything_else_is_refused(workload, name, gpus, said):
    with pytest.raises(UsageError, match=said):
        placed_on(FAMILY, WorkloadSpec(workload), name, gpus)


def test_the_command_line_finds_it_by_options_and_by_id():
    for name, options in (
        ("toy", ("brings", None, None)),
        ("toy/own", ("brings", None, None)),
        ("toy@brings/captured:6", (None, None, None)),
        ("toy/own@brings/captured:6", (None, None, None)),
    ):
        assert find_problem(REGISTRY, name, *options).topology.gpus == 6
    assert find_problem(REGISTRY, "toy", "brings", "dgx_h100", 8).topology.name == "dgx_h100"


def test_studies_and_the_gate_find_it():
    studied = replace(FAMILY, studies=(Study("brings/captured:6", ("own",), "captured"),))
    (request,) = registered_requests([studied])
    assert request.topology.gpus == 6
    cell = CellId.parse("toy/own@brings/captured:6")
    expectations = Expectations({cell: Expectation()})
    (problem,) = expected_problems(expectations, REGISTRY)
    assert str(problem.request.problem) == "brings/captured:6"

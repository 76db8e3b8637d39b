"""The topology of a problem is the named one, or the one stored in its workload."""

from dataclasses import replace

import pytest
from toy import TOY

from harness.contract import Study
from harness.contract.registry import Registry
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.model.topology import captured_topology
from harness.suites.declared import registered_requests
from harness.topologies.lookup import find_topology, placed_on
from shardbench.problems import find_problem

BRINGS = WorkloadSpec("brings")
CAPTURED = captured_topology(6, 3)
FAMILY = replace(
    TOY,
    variants=dict(TOY.variants),
    brings=lambda workload: CAPTURED if workload.name == "brings" else None,
    studies=(Study("brings/captured:6", ("own",), "captured"),),
)


def test_a_workload_brings_its_topology_unless_another_is_named():
    """A captured workload has the machines of its job."""
    for name, gpus in ((None, None), (None, 6), ("captured", None), ("captured", 6)):
        assert placed_on(FAMILY, BRINGS, name, gpus) == CAPTURED
    assert placed_on(FAMILY, BRINGS, "dgx_h100", 16) == find_topology("dgx_h100", 16)


@pytest.mark.parametrize(
    ("workload", "name", "gpus", "reason"),
    [
        ("toy", None, None, "name one with --topology"),
        ("toy", "captured", 6, "brings no topology of its own"),
        ("brings", "captured", 7, "captured on 6 GPUs, not on 7"),
        ("brings", "dgx_h100", None, "with --gpus how many"),
        ("brings", "dgx_h1000", 8, "Unknown topology"),
    ],
)
def test_anything_else_is_refused(workload, name, gpus, reason):
    """The sentence says what to name."""
    with pytest.raises(UsageError, match=reason):
        placed_on(FAMILY, WorkloadSpec(workload), name, gpus)


def test_commands_and_studies_find_it():
    """An id, options and a study give the same topology."""
    registry, options = Registry([FAMILY]), ("brings", None, None)
    assert find_problem(registry, "toy", *options).topology == CAPTURED
    by_id = find_problem(registry, "toy/own@brings/captured:6", None, None, None)
    assert by_id.topology == CAPTURED
    assert find_problem(registry, "toy", "brings", "dgx_h100", 8).topology.name == "dgx_h100"
    (request,) = registered_requests([FAMILY])
    assert request.topology == CAPTURED

"""The driver that measures torch's releases, run on the installed release."""

import pytest
from msgspec import to_builtins

from harness.contract import Upstream
from harness.contract.abilities import load
from harness.model.ids import ProblemId
from harness.series import driving
from harness.series.installing import installed_place
from harness.topologies.lookup import find_topology
from planners.dtensor.family import FAMILY

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def installed():
    place = installed_place("torch")
    with Upstream("torch", driving.__name__, place.folder) as upstream:
        yield upstream


def request(workload: str, kind: str) -> dict[str, object]:
    problem = ProblemId.parse(f"{workload}/dgx_a100_80gb:8")
    topology = find_topology(problem.topology, problem.gpus)
    driver = str(load(FAMILY.abilities.series).driver)
    wanted = driving.Request(driver, str(problem.workload), topology, ("miss",))
    return to_builtins(wanted) | {"kind": kind}


@pytest.mark.parametrize(
    ("workload", "ops", "misses"),
    [("ops[op=mm]", 20, 1), ("ops[op=mm+relu+t]", 60, 3), ("ops", 160, 8)],
)
def test_each_op_is_decided_once_and_found_from_then_on(installed, workload, ops, misses):
    """A first step misses each op once, and the next step finds all of them."""
    answer = installed.ask(request(workload, "counts"))
    assert answer["counters"]["misses"] == misses
    assert answer["counters"]["hits"] == ops
    assert answer["counters"]["miss_calls"] > answer["counters"]["warm_calls"]


def test_objects_that_outlive_a_step_are_counted(installed):
    """A new size leaves a decision, and other steps leave nothing."""
    kept = {
        workload: installed.ask(request(workload, "counts"))["counters"]["objects_kept"]
        for workload in (
            "ops[op=mm]", "optimizer[impl=fused,lr=changing]", "dynamic", "fsdp2-step[layers=1]"
        )
    }  # fmt: skip
    assert kept.pop("dynamic") > 0  # a decision for each size
    assert set(kept.values()) == {0}


def test_new_sizes_do_not_change_a_fingerprint_however_the_workload_is_written(installed):
    """Sizes of `dynamic` differ in each step, so they are no part of its fingerprint."""
    fingerprints = [
        installed.ask(request(workload, "counts"))["fingerprint"]
        for workload in ("dynamic", "dynamic", "dynamic[device=cpu]")
    ]
    assert len(set(fingerprints)) == 1


def test_a_miss_costs_more_than_a_hit(installed):
    """The time of a call is that of its two steps."""
    folder = str(installed_place("torch").folder)
    answer = installed.ask(request("mlp", "times") | {"folder": folder})
    phases = answer["phases"]
    assert 0.9 * answer["cpu_s"] < sum(phases.values()) <= answer["cpu_s"]
    assert phases["miss"] > phases["hit"] > 0

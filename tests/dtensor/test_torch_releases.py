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


def counts(installed: Upstream, workload: str) -> tuple[str, dict[str, int]]:
    answer = installed.ask(request(workload, "counts"))
    return answer["fingerprint"], answer["counters"]


@pytest.mark.parametrize(
    ("workload", "ops", "misses"), [("ops[op=mm]", 20, 1), ("ops[op=mm+relu+t]", 60, 3)]
)
def test_each_op_is_decided_once_and_remembered_from_then_on(installed, workload, ops, misses):
    """A first step misses each op once, the next step hits all of them, and nothing is kept."""
    _, counters = counts(installed, workload)
    assert (counters["misses"], counters["hits"], counters["objects_kept"]) == (misses, ops, 0)
    assert counters["miss_calls"] > counters["warm_calls"]


def test_new_sizes_are_kept_and_no_part_of_a_fingerprint(installed):
    """Each step of `dynamic` keeps a decision for its size, however the workload is written."""
    first, counters = counts(installed, "dynamic")
    again, _ = counts(installed, "dynamic[device=cpu]")
    assert again == first
    assert counters["objects_kept"] > 0


def test_a_miss_costs_more_than_a_hit(installed):
    """The time of a call is that of its two steps."""
    folder = str(installed_place("torch").folder)
    answer = installed.ask(request("mlp", "times") | {"folder": folder})
    phases = answer["phases"]
    assert 0.9 * answer["cpu_s"] < sum(phases.values()) <= answer["cpu_s"]
    assert phases["miss"] > phases["hit"] > 0

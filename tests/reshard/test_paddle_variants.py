"""The registered variants of the real Paddle, on the smallest program."""

import pytest

from harness.measuring.check import check
from harness.measuring.timing.clock import SystemClock
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.reshard import FAMILY
from planners.reshard.suite import PADDLE

pytestmark = pytest.mark.upstreams("paddle-2.6.2", "paddle-3.3.1")


@pytest.fixture(scope="module")
def checked():
    problem = FAMILY.work.build(
        WorkloadSpec.parse("paddle[layers=2]"), find_topology("dgx_a100_80gb", 4)
    )
    return {name: check(FAMILY, FAMILY.find(name), problem, SystemClock()) for name in PADDLE}


def test_each_release_makes_the_same_program_in_every_mode(checked):
    prints = [checked[name].fingerprint for name in PADDLE]
    assert len(set(prints[:3])) == len(set(prints[3:])) == 1


def test_the_counters_tell_that_the_switch_is_off(checked):
    syncs = [checked[name].counters["syncs"] for name in PADDLE]
    assert syncs == [299, 28, 5, 29, 5]
    for found in checked.values():
        assert found.counters["batches"] == 5
        assert found.counters["edits"] == 24 + 273

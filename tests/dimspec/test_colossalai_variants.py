"""The real releases and their reimplementations make the same decisions and counts."""

import pytest

from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dimspec import FAMILY

REAL = ("colossalai-0.4.0", "colossalai-0.4.1", "colossalai-0.4.1+interned")
LIKE = {"colossalai-0.4.0": "eager-dict", "colossalai-0.4.1": "lazy-dict"}

pytestmark = pytest.mark.upstreams(*LIKE)


def checked(name: str, workload: str, gpus: int = 4):
    problem = FAMILY.work.build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", gpus))
    return check(FAMILY, FAMILY.find(name), problem, SystemClock())


@pytest.mark.parametrize("workload", ["resnet50[calls=60]", "random[conversions=40]"])
@pytest.mark.parametrize("name", LIKE)
def test_a_release_decides_and_counts_like_its_reimplementation(name, workload):
    real, ours = checked(name, workload), checked(LIKE[name], workload)
    assert real.fingerprint == ours.fingerprint
    assert real.counters == ours.counters
    assert real.quality == ours.quality


def test_the_release_with_our_answers_decides_the_same_and_searches_once():
    ours = checked("colossalai-0.4.1+interned", "gpt12[calls=60]")
    assert ours.fingerprint == checked("eager-dict", "gpt12[calls=60]").fingerprint
    assert ours.counters["searches"] == ours.counters["distinct_searches"]
    assert ours.counters["dictionaries_built"] == 0


def test_the_constructor_makes_the_same_strategies():
    found = [checked(name, "constructor[model=mlp2]") for name in REAL]
    assert len({each.fingerprint for each in found}) == 1
    assert len({each.quality["reported_millions"] for each in found}) == 1
    before, after, ours = (each.counters["dictionaries_built"] for each in found)
    assert (before, after, ours) == (79_992, 59_961, 0)


def test_three_mesh_axes_are_upstreams_key_error_in_one_sentence():
    with pytest.raises(ShardbenchError) as raised:
        checked("colossalai-0.4.1", "all-pairs[rank=2,mesh=2x2x2]", 8)
    assert str(raised.value).startswith("colossalai-0.4.1 failed: KeyError: ")

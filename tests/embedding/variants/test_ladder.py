"""All variants of the ladder make the same decision, and copy objects as their names state."""

import copy

import pytest
from built_problem import problem
from hypothesis import given, settings, strategies as st
from torchrec.distributed.planner import partitioners
from torchrec.distributed.planner.estimator import annotations, estimator, types
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import DeviceHardware, Perf, ShardingOption, Storage

from harness.contract import InfeasibleDecision, Recorder
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from planners.embedding import FAMILY
from planners.embedding.decision import fingerprint
from planners.embedding.observer import observe
from planners.embedding.studies import LADDER, PUBLISHED
from planners.embedding.variants.rungs import (
    devices_copied_by_field,
)
from planners.instruments import replaced


@pytest.fixture(scope="module")
def checked():
    built = problem("synthetic[tables=6,seed=2,memory=tight]")
    return {name: check(FAMILY, FAMILY.find(name), built, SystemClock()) for name in LADDER}


def outcome(variant: str, built) -> str:
    """Return the fingerprint of a variant's plan, or the error message if it has no plan."""
    prepared = FAMILY.find(variant).prepared(built)
    try:
        with prepared.installed():
            return fingerprint(prepared.run())
    except InfeasibleDecision as error:
        return str(error)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    tables=st.integers(1, 5),
    seed=st.integers(0, 1000),
    memory=st.sampled_from(["roomy", "tight", "mixed"]),
    place=st.sampled_from([("dgx_a100_80gb", 8), ("aws_g4dn_12xlarge", 8), ("v100_x8", 4)]),
)
def test_all_rungs_decide_the_same(tables, seed, memory, place):
    built = problem(f"synthetic[tables={tables},seed={seed},memory={memory}]", *place)
    assert len({outcome(name, built) for name in LADDER}) == 1


def test_the_ladder_is_a_chain_from_the_reference_to_what_torchrec_could_have():
    assert FAMILY.reference.name == LADDER[0]
    assert [FAMILY.find(name).same_as for name in LADDER[1:-1]] == list(LADDER[:-2])
    assert FAMILY.find(LADDER[-1]).same_as == "upstream"


def test_each_proposal_is_copied_as_often_as_the_rung_says(checked):
    counters = [rung.counters for rung in checked.values()]
    assert len({(counts["proposals"], counts["partitions"]) for counts in counters}) == 1
    proposals = checked["upstream"].counters["proposals"]
    improvements = checked["upstream"].counters["plan_copies"]
    assert 0 < improvements < proposals
    copies = {name: rung.counters["plan_copies"] - improvements for name, rung in checked.items()}
    # The proposer is asked once more than it has proposals; copying nothing is no copy of a plan.
    assert copies == dict.fromkeys(LADDER, 0) | {
        "double-deepcopy": 2 * proposals,
        "single-deepcopy": proposals,
        "custom-deepcopy": proposals,
    }


def test_each_rung_copies_no_more_objects(checked):
    upstream = checked["upstream"].counters
    assert upstream == checked["cheap-device-copies"].counters, "since torchrec 1.9.0"
    devices = upstream["device_copies"] + upstream["partitions"]  # of the topology, too
    assert {checked[name].counters["device_copies"] for name in PUBLISHED} == {devices}
    copied = {name: rung.counters["objects_copied"] for name, rung in checked.items()}
    # An option's remembered values are copied with it, when a plan is the best so far.
    remembered = 6 * upstream["plan_copies"]
    copied["remembered-totals"] -= remembered
    assert list(copied.values()) == sorted(copied.values(), reverse=True)
    assert copied["double-deepcopy"] > 4 * copied["no-topology-copy"]
    assert copied["no-topology-copy"] > 1.5 * copied["cheap-device-copies"]


@pytest.mark.parametrize(
    ("rung", "counter", "factor"),
    [
        ("remembered-annotations", "annotation_lookups", 100),
        ("no-space-copy", "objects_copied", 1.2),
        ("distinct-shards", "estimates", 3),
        ("shared-device-figures", "device_copies", 100),
        ("remembered-hashes", "option_hashes", 3),
        ("remembered-totals", "option_sums", 3),
    ],
)
def test_an_improvement_saves_what_it_says(checked, rung, counter, factor):
    before, after = checked[LADDER[LADDER.index(rung) - 1]], checked[rung]
    assert before.counters[counter] > factor * after.counters[counter]


def test_devices_are_copied_cheaply_in_a_release_that_does_not(monkeypatch):
    """Simulates 1.8.0, which defines no `__deepcopy__` on these classes."""
    for kind in (DeviceHardware, Perf, Storage):
        monkeypatch.delattr(kind, "__deepcopy__")
    device = DeviceHardware(3, Storage(5, 7), Perf(1.0, 2.0, 3.0, 4.0))
    with replaced(devices_copied_by_field()):
        copied = copy.deepcopy([device, device.perf])
    assert copied == [device, device.perf]
    assert copied[0].storage is not device.storage
    assert copied[0].perf is not device.perf
    assert not hasattr(DeviceHardware, "__deepcopy__")


def state() -> list[object]:
    """Return the contents of all classes and modules that a hook or the observer patches."""
    watched = (DeviceHardware, Perf, Storage, ShardingOption, partitioners, estimator, types)
    patched = (EmbeddingShardingPlanner, copy, annotations)
    return [dict(vars(owner)) for owner in (*watched, *patched)]


@pytest.mark.parametrize("name", ["no-topology-copy", "remembered-totals"])
def test_a_rung_and_the_observer_leave_nothing_behind(name):
    before = state()
    prepared = FAMILY.find(name).prepared(problem("synthetic[tables=2,seed=2]"))
    with prepared.installed(), observe(Recorder()):
        assert state() != before
        prepared.run()
    assert state() == before


@pytest.mark.parametrize("name", ["uniform", "greedy-sum", "default", "dp-torchrec"])
def test_variants_that_decide_for_themselves_make_valid_plans(name):
    built = problem("synthetic[tables=5,seed=2,memory=roomy]")
    found = check(FAMILY, FAMILY.find(name), built, SystemClock())
    assert outcome(name, built) == found.fingerprint, "each call has a new planner"
    assert found.quality["max_rank_ms"] > 0
    assert found.counters["proposals"] >= found.counters["partitions"] > 0
    assert set(found.phases) <= set(FAMILY.phases)

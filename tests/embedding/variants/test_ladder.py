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
from planners.embedding.implementation import observe
from planners.embedding.studies import OTHER_PROPOSERS

NAMES = [*FAMILY.variants]
LADDER = [*NAMES[: NAMES.index("remembered-totals") + 1], "compiled"]


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


@settings(max_examples=4, deadline=None)
@given(
    tables=st.integers(1, 5),
    seed=st.integers(0, 1000),
    memory=st.sampled_from(["roomy", "tight", "mixed"]),
    place=st.sampled_from([("dgx_a100_80gb", 8), ("aws_g4dn_12xlarge", 8), ("v100_x8", 4)]),
)
def test_all_rungs_decide_the_same(tables, seed, memory, place):
    """They have the same plan, or the same error."""
    built = problem(f"synthetic[tables={tables},seed={seed},memory={memory}]", *place)
    assert len({outcome(name, built) for name in LADDER}) == 1


def test_each_proposal_is_copied_as_often_as_the_rung_says(checked):
    """All rungs make the same proposals."""
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


@pytest.mark.parametrize(
    ("rung", "counter", "factor"),
    [
        ("copy-if-better", "objects_copied", 1.2),
        ("no-topology-copy", "objects_copied", 1.2),
        ("cheap-device-copies", "objects_copied", 1.5),
        ("remembered-annotations", "annotation_lookups", 100),
        ("no-space-copy", "objects_copied", 1.2),
        ("distinct-shards", "estimates", 3),
        ("shared-device-figures", "device_copies", 100),
        ("remembered-hashes", "option_hashes", 3),
        ("remembered-totals", "option_sums", 3),
    ],
)
def test_an_improvement_saves_what_it_says(checked, rung, counter, factor):
    """The rung before it counts this many times as much."""
    before, after = checked[LADDER[LADDER.index(rung) - 1]], checked[rung]
    assert before.counters[counter] > factor * after.counters[counter]


def state() -> list[object]:
    """Return the contents of all classes and modules that a rung or the observer patches."""
    classes = DeviceHardware, Perf, Storage, ShardingOption, EmbeddingShardingPlanner
    modules = partitioners, estimator, types, copy, annotations
    return [dict(vars(owner)) for owner in (*classes, *modules)]


@pytest.mark.parametrize("name", ["no-topology-copy", "remembered-totals"])
def test_a_rung_and_the_observer_leave_nothing_behind(name):
    """What they replace is back after a plan."""
    before = state()
    prepared = FAMILY.find(name).prepared(problem("synthetic[tables=2,seed=2]"))
    with prepared.installed(), observe(Recorder()):
        assert state() != before
        prepared.run()
    assert state() == before


@pytest.mark.parametrize("name", OTHER_PROPOSERS)
def test_variants_that_decide_for_themselves_make_valid_plans(name):
    """Each call has a new planner."""
    built = problem("synthetic[tables=5,seed=2,memory=roomy]")
    checked = check(FAMILY, FAMILY.find(name), built, SystemClock())
    assert outcome(name, built) == checked.fingerprint
    assert checked.quality["max_rank_ms"] > 0
    assert checked.counters["proposals"] >= checked.counters["partitions"] > 0
    assert set(checked.phases) <= set(FAMILY.phases)

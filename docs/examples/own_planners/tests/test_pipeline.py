"""The family by its behaviour: against all cuts that there are, and through shardbench itself."""

import json
from itertools import accumulate, combinations

import pytest
from hypothesis import given, settings, strategies as st
from own_planners.pipeline import FAMILY
from own_planners.pipeline.chain import Chain, Cut, explain, quality, validate

from harness.contract import Question, WorkloadSpec
from harness.contract.registry import load_registry
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import InfeasibleDecision, UsageError
from harness.topologies.lookup import find_topology

settings.register_profile("own-planners", deadline=None)  # a busy machine is no failure
settings.load_profile("own-planners")


@st.composite
def chains(draw):
    """Return a short chain with small costs, so that many cuts are equally good."""
    costs = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    return Chain((0, *accumulate(costs)), draw(st.integers(1, len(costs))))


def decided(name, chain):
    """Return what a variant decides."""
    cut = FAMILY.find(name).prepared(chain).run()
    validate(chain, cut)
    return cut


@given(chains())
def test_both_find_the_best_cut_with_the_longest_first_stages(chain):
    """Of all cuts, by trying them."""
    cuts = [
        Cut((*ends, chain.layers))
        for ends in combinations(range(1, chain.layers), chain.stages - 1)
    ]
    best = min(cuts, key=lambda cut: (quality(chain, cut)["slowest_stage"], [-e for e in cut.ends]))
    assert decided("exact", chain) == decided("bisected", chain) == best


@given(chains())
def test_no_variant_betters_the_bound_and_each_is_explained(chain):
    """Also the one that decides for itself."""
    for name in FAMILY.variants:
        cut = decided(name, chain)
        figures = quality(chain, cut)
        assert figures["slowest_stage"] >= figures["bound"] * (1 - 1e-12)
        told = explain(chain, cut, Question()).document
        assert max(told["flop"]) / 10**12 == figures["slowest_stage"]


def test_it_is_found_by_its_entry_point_and_counts_what_it_does():
    """Bisection asks for few sums, dynamic programming for many."""
    family = load_registry().find("pipeline")
    chain = family.work.build(WorkloadSpec.parse("uneven[layers=30]"), find_topology("dgx_h100", 4))
    seen = {
        name: check(family, family.find(name), chain, SystemClock()) for name in family.variants
    }
    assert seen["exact"].fingerprint == seen["bisected"].fingerprint
    assert seen["exact"].counters["sums"] > 1000 > seen["bisected"].counters["sums"] > 0
    assert seen["bisected"].counters["lookups"] > 0
    assert seen["equal-counts"].counters == {"sums": 0, "lookups": 0}


@pytest.mark.parametrize("ends", [(1, 3), (2, 1, 3), (1, 2, 4), (1, 2, 2)])
def test_a_cut_that_is_none_is_refused(ends):
    """Each stage has a layer, each layer a stage."""
    with pytest.raises(InfeasibleDecision):
        validate(Chain((0, 1, 2, 3), 3), Cut(ends))


@pytest.mark.parametrize("content", [{}, {"flop": []}, {"flop": [1, 0]}, {"flop": [True]}])
def test_a_file_that_is_no_chain_is_refused(tmp_path, content):
    """Before anything is built."""
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"layers\.json"):
        FAMILY.label(WorkloadSpec(str(path)))


def test_a_file_is_a_workload(tmp_path):
    """Results call it by its name and content; it needs a layer for each GPU."""
    path = tmp_path / "layers.json"
    path.write_text('{"flop": [3, 1, 2]}')
    spec = WorkloadSpec(str(path))
    assert FAMILY.work.build(spec, find_topology("dgx_h100", 2)).until == (0, 3, 4, 6)
    assert str(FAMILY.label(spec)).startswith("layers.json#")
    with pytest.raises(UsageError, match="3 layers"):
        FAMILY.work.build(spec, find_topology("dgx_h100", 8))

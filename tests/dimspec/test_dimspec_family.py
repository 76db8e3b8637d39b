"""The family is found by its entry point; its variants, claims and problems exist and are right."""

import subprocess
import sys

import pytest
from small_streams import GREEDY, SEARCHES, problem_of

from harness.contract import NotApplicable
from harness.contract.registry import load_registry
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from planners.dimspec import FAMILY
from planners.dimspec.suite import ALL, LADDER, PUBLISHED

SMALL = "all-pairs[shape=8x4x6]/dgx_a100_80gb:8"
CUBE = "all-pairs[rank=2,mesh=2x2x2]/dgx_a100_80gb:8"


def test_it_is_found_through_its_entry_point():
    assert load_registry().find("dimspec") is FAMILY


def test_listing_it_imports_neither_torch_nor_colossalai():
    code = (
        "import sys, planners.dimspec as d; d.FAMILY.workloads(); "
        "assert not {'torch', 'colossalai', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_variants_are_listed_from_what_was_to_what_can_be():
    real = ["colossalai-0.4.0", "colossalai-0.4.1", "colossalai-0.4.1+interned"]
    assert list(FAMILY.variants) == list(ALL) == [*SEARCHES, *real]


def test_all_but_the_optimal_one_decide_as_the_reference():
    assert FAMILY.reference.name == "eager-dict" == LADDER[0] == PUBLISHED[0]
    assert [FAMILY.find(name).same_as for name in LADDER[1:]] == ["eager-dict"] * 4
    assert FAMILY.find("optimal").same_as is None


def test_the_published_claim_is_that_of_the_change():
    claims = {name: FAMILY.find(name).claim for name in SEARCHES}
    claim = claims.pop("lazy-dict")
    assert (claim.before, claim.after, claim.unit) == (56.79, 31.93, "s")
    assert set(claims.values()) == {None}


def test_all_problems_and_variants_of_its_studies_and_goals_exist():
    for study in FAMILY.studies:
        assert [FAMILY.find(name).name for name in study.variants] == list(study.variants)
        assert study.against is None or study.against in study.variants
        if not study.large:
            assert problem_of(study.problem).facts()["mesh"]
    assert all(problem_of(text).facts() for text in FAMILY.benchmarks)
    studied = {study.problem for study in FAMILY.studies}
    assert {found.problem for found in FAMILY.statements} <= studied


@pytest.mark.parametrize(
    ("name", "text"),
    [*((name, SMALL) for name in SEARCHES), ("interned", CUBE), ("optimal", CUBE)],
)
def test_the_harness_checks_every_variant(name, text):
    problem = problem_of(text)
    found = check(FAMILY, FAMILY.find(name), problem, SystemClock())
    expected = check(FAMILY, FAMILY.find("interned"), problem, SystemClock())
    assert (found.fingerprint == expected.fingerprint) == (name in GREEDY)
    assert found.quality["cost_millions"] >= found.quality["cheapest_millions"] > 0
    assert found.quality["cheapest_millions"] == expected.quality["cheapest_millions"]
    assert (found.quality["dearer_conversions"] > 0) == (name in GREEDY)
    assert set(found.quality) < {each.name for each in FAMILY.qualities}
    assert set(found.counters) == {each.name for each in FAMILY.counters}
    assert set(found.phases) <= set(FAMILY.phases)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_quality_is_told_on_a_recorded_stream(name):
    problem = problem_of("gpt12[calls=150]/dgx_a100_80gb:4")
    found = check(FAMILY, FAMILY.find(name), problem, SystemClock())
    assert list(found.quality) == [each.name for each in FAMILY.qualities]
    assert (found.quality["unlike_recorded"] == 0) == (name in GREEDY)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_second_call_decides_as_the_first_and_begins_with_nothing(name):
    prepared = FAMILY.find(name).prepared(problem_of(SMALL))
    first, second = prepared.run(), prepared.run()
    assert FAMILY.work.fingerprint(first) == FAMILY.work.fingerprint(second)
    specs = [
        {id(spec) for each in made.conversions for spec in each.path} for made in (first, second)
    ]
    assert specs[0].isdisjoint(specs[1])


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_makes_no_strategies_and_says_so(name):
    problem = problem_of("constructor[model=mlp2]/dgx_a100_80gb:4")
    with pytest.raises(NotApplicable, match="run a real library"):
        FAMILY.find(name).prepared(problem)

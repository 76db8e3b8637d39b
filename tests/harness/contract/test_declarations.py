import math
from dataclasses import replace

import pytest
import toy
from fake_clock import FakeClock
from msgspec import structs

from harness.contract import Counter, Quality, RankTable, Study
from harness.contract.registry import Registry
from harness.measuring.check import check
from harness.model.errors import RegistryError
from harness.model.ids import WorkloadSpec
from harness.model.quality import find_bound
from harness.topologies.lookup import find_topology

COST = Quality("cost", "ms", "lower", "what it costs")
LEAST = Quality("least", "ms", "higher", "what it costs at least", bounds="cost")
SPEED = Quality("speed", "", "higher", "how fast it is")
MOST = Quality("most", "", "lower", "how fast it can be", bounds="speed")


def bound(*qualities: Quality):
    return find_bound(qualities)


def test_a_family_without_a_quality_is_refused():
    """Every table shows a family's first quality, so it has one before anything is measured."""
    with pytest.raises(RegistryError, match="'toy' needs at least one quality"):
        Registry([replace(toy.TOY, qualities=())])


class TestBounds:
    @pytest.mark.parametrize("target", ["cost", "least"])
    def test_a_bound_of_no_other_quality_is_refused(self, target: str):
        family = replace(toy.TOY, qualities=(SPEED, structs.replace(LEAST, bounds=target)))
        with pytest.raises(RegistryError) as refused:
            Registry([family])
        assert str(refused.value) == (
            f"Quality 'least' of family 'toy' bounds '{target}', which is no other quality of it."
        )

    def test_it_is_found_where_it_bounds_the_first_quality(self):
        assert bound(COST) is None
        assert bound(SPEED, COST, LEAST) is None
        found = bound(COST, SPEED, LEAST)
        assert found is not None
        assert (found.quality, found.name) == ("cost", "least")

    @pytest.mark.parametrize(
        ("qualities", "values", "gap"),
        [
            ((COST, LEAST), {"cost": 11.0, "least": 10.0}, 0.1),
            ((COST, LEAST), {"cost": 10.0, "least": 10.0}, 0.0),
            ((SPEED, MOST), {"speed": 8.0, "most": 10.0}, 0.25),
            ((COST, LEAST), {"cost": 11.0}, math.nan),
            ((COST, LEAST), {"least": 10.0}, math.nan),
            ((COST, LEAST), {"cost": 11.0, "least": 0.0}, math.nan),
        ],
    )
    def test_the_gap_is_what_is_left_to_the_bound(self, qualities, values, gap):
        found = bound(*qualities)
        assert found is not None
        assert found.gap(values) == pytest.approx(gap, nan_ok=True)

    def test_a_bound_that_a_decision_passes_is_none(self, clock: FakeClock):
        (family,) = toy.bounded_registry().families
        problem = toy.build(WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2))
        assert check(family, family.find("same"), problem, clock).quality["least"] == 3.0
        wrong = toy.with_work(
            family, quality=lambda problem, decision: {"fullest": 2.0, "least": 3.0}
        )
        with pytest.raises(RegistryError) as refused:
            check(wrong, family.find("same"), problem, clock)
        assert str(refused.value) == (
            "Quality 'fullest' of 'toy/same' is 2, better than its proven bound 'least' of 3."
        )

    def test_a_rounding_is_no_contradiction(self):
        found = bound(COST, LEAST)
        assert found is not None
        assert not found.is_passed({"cost": 10.0, "least": 10.0 * (1 + 1e-12)})


class TestStudies:
    def test_one_problem_against_two_variants_is_refused(self):
        studies = (
            Study("toy[size=4,build=0]/dgx_a100_80gb:2", ("same",), "first"),
            Study("toy[build=0,size=4]/dgx_a100_80gb:2", ("own",), "second", against="same"),
        )
        with pytest.raises(RegistryError) as refused:
            Registry([replace(toy.TOY, studies=studies)])
        assert str(refused.value) == (
            "Family 'toy' studies 'toy[build=0,size=4]/dgx_a100_80gb:2' against 'reference' and "
            "against 'same'; a problem can be studied against one variant only."
        )

    def test_the_reference_may_be_named(self):
        problem = "toy[size=4]/dgx_a100_80gb:2"
        studies = (Study(problem, ("own",), "a"), Study(problem, ("same",), "b", "reference"))
        assert Registry([replace(toy.TOY, studies=studies)]).families

    def test_a_malformed_problem_is_refused(self):
        with pytest.raises(RegistryError, match="A study of family 'toy' is malformed: Problem"):
            Registry([replace(toy.TOY, studies=(Study("toy", (), "lost"),))])


class TestRankTables:
    @pytest.mark.parametrize(
        ("rows", "capacities", "bar"),
        [
            (((1.0,),), (None, 80.0), "ms"),
            (((1.0, 2.0),), (None,), "ms"),
            (((1.0, 2.0), (1.0,)), (None, 80.0), "ms"),
            (((1.0, 2.0),), (None, 80.0), "GiB of HBM"),
        ],
    )
    def test_one_that_contradicts_itself_is_refused(self, rows, capacities, bar):
        with pytest.raises(ValueError) as refused:
            RankTable(("ms", "GiB"), rows, capacities, bar)
        assert str(refused.value) == (
            "a rank table must have a figure in each row and a capacity for each of its columns, "
            "which are ms, GiB, and a bar that is one of them"
        )

    def test_there_may_be_no_rank(self):
        assert RankTable(("ms",), (), (None,), "ms").rows == ()


@pytest.mark.parametrize("sufficient", [None, 0, 1, "asked"])
def test_a_sufficient_count_is_a_number_or_another_counter(sufficient):
    counters = (Counter("asked", "questions"), Counter("searched", "searches", sufficient))
    Registry([replace(toy.TOY, counters=counters)])


def test_a_sufficient_count_is_no_counter_that_does_not_exist():
    family = replace(toy.TOY, counters=(Counter("searched", "searches", sufficient="asked"),))
    with pytest.raises(RegistryError, match="'searched' of family 'toy', 'asked'"):
        Registry([family])

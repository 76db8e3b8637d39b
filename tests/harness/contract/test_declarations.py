"""Bounds on qualities, and tables of ranks."""

import math

import pytest
import toy
import toy_registries
from fake_clock import FakeClock

from harness.contract import Quality, RankTable
from harness.measuring.jobs import check
from harness.model.errors import RegistryError
from harness.model.ids import WorkloadSpec
from harness.model.quality import Bound, find_bound
from harness.topologies.lookup import find_topology

COST = Quality("cost", "ms", "lower", "what it costs")
LEAST = Quality("least", "ms", "higher", "what it costs at least", bounds="cost")
SPEED = Quality("speed", "", "higher", "how fast it is")


def test_only_a_bound_on_the_first_quality_counts():
    """The gap of a decision is that of the family's first quality."""
    assert find_bound((COST,)) is None
    assert find_bound((SPEED, COST, LEAST)) is None
    assert find_bound((COST, SPEED, LEAST)) == Bound("cost", "least", "lower")


@pytest.mark.parametrize(
    ("better", "value", "bound", "gap"),
    [
        ("lower", 11.0, 10.0, 0.1),
        ("lower", 10.0, 10.0, 0.0),
        ("higher", 8.0, 10.0, 0.25),
        ("lower", 11.0, 0.0, math.nan),
        ("lower", 11.0, None, math.nan),
    ],
)
def test_the_gap_is_the_distance_to_the_bound(better, value, bound, gap):
    """The gap is a share of the bound, and NaN if either is unknown."""
    found = Bound("value", "bound", better).gap({"value": value, "bound": bound})
    assert found == pytest.approx(gap, nan_ok=True)


def test_a_decision_better_than_its_bound_fails_its_check(clock: FakeClock):
    """The quality or the bound is wrong; rounding is no contradiction."""
    (family,) = toy_registries.bounded_registry().families
    problem = toy.build(WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2))
    assert check(family, family.find("same"), problem, clock).quality["least"] == 3.0
    wrong = toy.with_work(family, quality=lambda problem, decision: {"fullest": 2.0, "least": 3.0})
    with pytest.raises(RegistryError, match="is 2, better than its proven bound 'least' of 3"):
        check(wrong, family.find("same"), problem, clock)
    bound = Bound("cost", "least", "lower")
    assert not bound.is_passed({"cost": 10.0, "least": 10.0 * (1 + 1e-12)})


@pytest.mark.parametrize(
    ("rows", "capacities", "bar"),
    [
        (((1.0,),), (None, 80.0), "ms"),
        (((1.0, 2.0),), (None,), "ms"),
        (((1.0, 2.0),), (None, 80.0), "GiB of HBM"),
    ],
)
def test_a_table_of_ranks_that_contradicts_itself_is_refused(rows, capacities, bar):
    """Rows and capacities have a value per column, and the bar is a column."""
    with pytest.raises(ValueError, match="a rank table must have a figure in each row"):
        RankTable(("ms", "GiB"), rows, capacities, bar)

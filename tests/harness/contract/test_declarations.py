"""What a family declares is checked when it is registered."""

import math
from dataclasses import replace

import pytest
import toy
from fake_clock import FakeClock

from harness.contract import Claim, Pair, Quality, RankTable, Statement, Study
from harness.contract.registry import Registry
from harness.measuring.jobs import check
from harness.model.errors import RegistryError
from harness.model.ids import WorkloadSpec
from harness.model.quality import find_bound
from harness.topologies.lookup import find_topology

PROBLEM = "toy[size=4]/dgx_a100_80gb:2"
COST = Quality("cost", "ms", "lower", "what it costs")
LEAST = Quality("least", "ms", "higher", "what it costs at least", bounds="cost")
SPEED = Quality("speed", "", "higher", "how fast it is")
MOST = Quality("most", "", "lower", "how fast it can be", bounds="speed")
GOAL = Statement("goal", "quick", PROBLEM, "reference", "same", at_least=2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"qualities": ()}, "'toy' needs at least one quality"),
        ({"studies": (Study("toy", (), "lost"),)}, "A study of family 'toy' is malformed: Problem"),
        (
            {"studies": (Study(PROBLEM, (), "a"), Study(PROBLEM, (), "b", against="same"))},
            "can be studied against one variant only",
        ),
        ({"statements": (replace(GOAL, after="sane"),)}, "'quick' of family 'toy' names variant"),
        (
            {"statements": (replace(GOAL, problem="toy"),)},
            "Statement 'quick' of family 'toy' is ma",
        ),
        ({"statements": (replace(GOAL, measure="speed"),)}, "names measure 'speed'"),
        ({"statements": (replace(GOAL, at_least=None),)}, "needs at_least or at_most"),
    ],
)
def test_names_that_a_family_does_not_have_are_refused(changes: dict, sentence: str):
    """A declaration that contradicts itself is refused in one sentence."""
    with pytest.raises(RegistryError, match=sentence):
        Registry([replace(toy.TOY, **changes)])


def test_a_claim_has_the_published_figures_of_its_variant():
    """A statement has the family's name, and figures and source of the variant after the change."""
    commits = Statement(
        "claim", "Toy #1", PROBLEM, "lib/a", "lib/b", quick=Pair(PROBLEM, "reference", "same")
    )
    (claim,) = replace(toy.TOY, statements=(commits,)).declared_statements()
    assert claim.published == Claim(20, 10, "min")
    assert str(claim.cell_id(PROBLEM, claim.after)) == f"lib/b@{PROBLEM}"
    assert str(claim.cell_id(PROBLEM, "same")) == f"toy/same@{PROBLEM}"


class TestBounds:
    def test_only_a_bound_on_the_first_quality_counts(self):
        """The gap of a decision is that of the family's first quality."""
        assert find_bound((COST,)) is None
        assert find_bound((SPEED, COST, LEAST)) is None
        bound = find_bound((COST, SPEED, LEAST))
        assert bound
        assert (bound.quality, bound.name) == ("cost", "least")

    @pytest.mark.parametrize(
        ("qualities", "values", "gap"),
        [
            ((COST, LEAST), {"cost": 11.0, "least": 10.0}, 0.1),
            ((COST, LEAST), {"cost": 10.0, "least": 10.0}, 0.0),
            ((SPEED, MOST), {"speed": 8.0, "most": 10.0}, 0.25),
            ((COST, LEAST), {"cost": 11.0}, math.nan),
            ((COST, LEAST), {"cost": 11.0, "least": 0.0}, math.nan),
        ],
    )
    def test_the_gap_is_the_distance_to_the_bound(self, qualities, values, gap):
        """The gap is a share of the bound, and NaN if either is unknown."""
        bound = find_bound(qualities)
        assert bound
        assert bound.gap(values) == pytest.approx(gap, nan_ok=True)

    def test_a_decision_better_than_its_bound_fails_its_check(self, clock: FakeClock):
        """The quality or the bound is wrong; rounding is no contradiction."""
        (family,) = toy.bounded_registry().families
        problem = toy.build(WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2))
        assert check(family, family.find("same"), problem, clock).quality["least"] == 3.0
        wrong = toy.with_work(
            family, quality=lambda problem, decision: {"fullest": 2.0, "least": 3.0}
        )
        with pytest.raises(RegistryError, match="is 2, better than its proven bound 'least' of 3"):
            check(wrong, family.find("same"), problem, clock)
        bound = find_bound((COST, LEAST))
        assert bound
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

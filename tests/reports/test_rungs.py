"""The ladder: the reference and the variants that must make its decision."""

import pytest
from made_up_results import cell, family_lines, family_of

from harness.model.statement import Claim
from reports.family.data import published_shares


@pytest.mark.parametrize(
    ("claims", "shares"),
    [
        ([None, Claim(1200, 600), Claim(600, 150)], [None, 0.5, 0.125]),
        ([Claim(1200, 600), None, Claim(600, 150)], [0.5, None, 0.125]),
        ([Claim(100, 50), Claim(100, 25)], [0.5, 0.25]),
        ([Claim(100, 50), Claim(8, 2, "ms")], [0.5, 0.125]),
        ([Claim(100, 50), Claim(20, 10, "", "another"), Claim(50, 25)], [0.5, None, 0.25]),
    ],
)
def test_published_shares_follow_the_steps(claims, shares):
    """Steps multiply, and a claim of another problem takes no part."""
    assert published_shares(claims) == shares


def test_the_ladder_has_what_must_decide_as_the_reference(tmp_path):
    """Directly or through another variant; the others are no rungs."""
    lines = [
        *family_lines((10,)),
        cell("step", same_as="no-copy", decision="same", ratio=0.3),
        cell("even-faster", same_as="even", decision="same", ratio=0.01),
    ]
    rungs = family_of(tmp_path, lines).ladder
    shares = {rung.variant: rung.share for rung in rungs}
    assert list(shares) == ["slow-copy", "half-copy", "quick-copy", "no-copy", "step"]
    assert (shares["slow-copy"], shares["quick-copy"]) == (1.0, 0.125)

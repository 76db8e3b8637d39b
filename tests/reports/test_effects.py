"""Findings on measured effects: phases, qualities, growth, and the ladder of published steps."""

import math

import pytest
from made_up_results import assert_in_order, cell, family_lines, family_of, past_lines

from reports.family.ladder import ladder, published_shares
from reports.family.measured_findings import effects


@pytest.fixture
def told(tmp_path):
    return lambda lines: list(effects(family_of(tmp_path, lines)))


def of(kind, found):
    return " ".join(f"{f.sentence} {f.detail}" for f in found if f.kind == kind)


def test_the_phase_and_the_whole_are_told_apart(told):
    text = of("phases", told(family_lines()))
    assert "`copy` becomes 9.96 times as fast but the whole only 2.7 times as fast" in text
    assert "`rate` (54 %) and `other` (27 %)" in text
    assert "`rate` and `other` cost as much as before" in text


def test_a_whole_that_shrinks_with_its_phase_is_not_excused(told):
    lines = [
        cell(decision="reference", phases={"copy": 9.0, "rate": 0.1}),
        cell(
            "b", same_as="slow-copy", decision="same", ratio=0.5, phases={"copy": 4.5, "rate": 0.1}
        ),
    ]
    text = of("phases", told(lines))
    assert "`copy` becomes 2.02 times as fast, and the whole 2 times as fast with it" in text
    assert "because" not in text


def test_a_phase_that_grew_is_no_shrinkage(told):
    lines = [
        cell(decision="reference", phases={"copy": 1.0}),
        cell("b", same_as="slow-copy", decision="same", ratio=1.5, phases={"copy": 1.5}),
    ]
    assert "No phase of `slow-copy` gets shorter in `b`" in of("phases", told(lines))


def test_quality_is_told_with_what_it_costs(told):
    text = of("quality", told(family_lines()))
    assert "`exhaustive` has the best `max_widget_ms`, 9 % better than `slow-copy`'s" in text
    assert "in 24 times `slow-copy`'s CPU time" in text
    assert "the worst is `even`" in text
    assert "in 1 % of `slow-copy`'s CPU time" in text


def test_a_quality_may_be_better_when_higher(told):
    higher = [{"name": "speed", "unit": "", "better": "higher", "meaning": "Made up."}]
    lines = [
        cell(decision="reference", quality={"speed": 10.0}, qualities=higher),
        cell("worse", quality={"speed": 5.0}, qualities=higher, ratio=0.5),
        cell("better", quality={"speed": 12.0}, qualities=higher, ratio=2.0),
    ]
    text = of("quality", told(lines))
    assert "`better` has the best `speed`, 20 % better" in text
    assert "the worst is `worse`" in text


def test_sameness_is_counted_where_it_does_not_always_hold(told):
    lines = family_lines((10, 20))
    for line in lines:
        if line["variant"] == "quick-copy" and line["size"] == 10:
            line["decision"] = "different"
    assert "makes the same decision on 1 of 2 problems" in of("published", told(lines))


def test_growth_is_told_of_five_sizes(told):
    text = of("growth", told(family_lines()))
    assert "to the power 1.00 (1.00 to 1.00) for `even`, up to 2.50" in text
    assert "4 to 5 sizes from 5 to 80" in text
    assert of("growth", told(family_lines((10, 20, 40, 80)))) == ""


def test_without_a_claim_nothing_is_said_of_one(told):
    lines = [line | {"claim": None} for line in family_lines((10,))]
    assert of("published", told(lines)) == ""


def claim(before, after, unit="s", conditions=""):
    figures = {"claim_before": before, "claim_after": after}
    return figures | {"claim_unit": unit, "claim_conditions": conditions}


def test_published_shares_follow_the_steps():
    none = claim(float("nan"), float("nan"))
    assert published_shares([none, claim(1200, 600), claim(600, 150)])[1:] == [0.5, 0.125]
    assert published_shares([claim(1200, 600), none, claim(600, 150)])[2] == 0.125
    assert published_shares([claim(100, 50), claim(100, 25)]) == [0.5, 0.25]
    assert published_shares([claim(100, 50), claim(8, 2, "ms")]) == [0.5, 0.125]


def test_what_was_published_of_another_problem_goes_on_with_no_ladder():
    shares = published_shares([claim(100, 50), claim(20, 10, conditions="another"), claim(50, 25)])
    assert (shares[0], math.isnan(shares[1]), shares[2]) == (0.5, True, 0.25)


def test_the_ladder_holds_what_must_decide_as_the_reference(tmp_path):
    lines = [
        *family_lines((10,)),
        cell("step", same_as="no-copy", decision="same", ratio=0.3),
        cell("even-faster", same_as="even", decision="same", ratio=0.01),
    ]
    family = family_of(tmp_path, lines)
    assert family.rungs == ["slow-copy", "half-copy", "quick-copy", "no-copy", "step"]
    shares = ladder(family).set_index("variant")["published_share"]
    assert shares["slow-copy"] == 1.0
    assert shares["quick-copy"] == 0.125


def test_quality_is_set_beside_what_was_compared_with(told):
    text = of("quality", told(past_lines((400,), ())))
    assert "`certified` has the best `max_widget_ms`, 20 % better than `no-copy`'s" in text
    assert "in 37.9 times `no-copy`'s CPU time" in text


def test_the_smallest_and_the_largest_gap_are_told(told):
    text = of("quality", told(past_lines()))
    assert_in_order(text, "gap", "`certified`", "boxes=400", "0.05 %", "`sorted`", "50.0 %")
    assert "gap" not in of("quality", told(family_lines()))

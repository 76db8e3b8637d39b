import math

import pytest
from made_up_results import (
    assert_in_order,
    cell,
    family_lines,
    family_of,
    goal,
    over_budget,
    overview_row,
    past_lines,
    results_of,
)

from reports.family.data import families
from reports.family.ladder import ladder, published_shares
from reports.report.findings import KINDS, family_findings, file_findings


@pytest.fixture
def told(tmp_path):
    def tell(lines):
        results = results_of(tmp_path, lines)
        found = [each for family in families(results) for each in family_findings(family)]
        return [*found, *file_findings(results)]

    return tell


def of(kind, found):
    return " ".join(f"{f.sentence} {f.detail}" for f in found if f.kind == kind)


def declared(lines, *rows):
    return [line | {"overview": [*rows]} for line in lines]


def test_ours_against_todays_release_comes_first_and_the_claim_after(told):
    row = overview_row("Boxes", "no-copy", "compiled", best="certified")
    found = told(declared([*family_lines(), *past_lines((400,), ())], row))
    firsts = dict.fromkeys(f.kind for f in found)
    assert list(firsts) == sorted(firsts, key=KINDS.index)
    gain, better, published = found[:3]
    assert_in_order(gain.sentence, "`compiled`", "36.6 times", "`no-copy`", "same decision")
    assert_in_order(gain.detail, "boxes=400", "1.67 s", "61.2 s", "34.9 to 38.1")
    assert_in_order(better.sentence, "`certified`", "640 ms", "800 ms", "`no-copy`")
    assert_in_order(better.detail, "0.05 %", "25.0 %")
    assert_in_order(
        published.sentence, "`quick-copy`", "8 times", "`slow-copy`", "2.7 times", "same"
    )
    assert_in_order(published.detail, "0.370", "0.355 to 0.389", "10 min → 2.5 min")


def test_todays_release_is_named_as_what_it_is(told):
    row = overview_row("Boxes", "no-copy", "compiled", today_is="a stand-in for Boxes 3")
    (gain, *_) = told(declared(past_lines((400,), ()), row))
    assert "`no-copy` (a stand-in for Boxes 3)" in gain.sentence


def test_a_family_without_overview_begins_with_its_fastest_with_the_same_decision(told):
    gain = told(family_lines())[0]
    assert_in_order(gain.sentence, "`no-copy`", "3.52 times", "`slow-copy`", "same decision")


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


def test_a_different_decision_is_never_a_speed_up(told):
    lines = family_lines((10,))
    for line in lines:
        if line["variant"] == "no-copy":
            line["decision"] = "different"
    found = told(lines)
    assert "`no-copy` must make the decision of `slow-copy`" in of("different decisions", found)
    others = " ".join(of(kind, found) for kind in KINDS if kind != "different decisions")
    assert "no-copy" not in others


def test_sameness_is_counted_where_it_does_not_always_hold(told):
    lines = family_lines((10, 20))
    for line in lines:
        if line["variant"] == "quick-copy" and line["size"] == 10:
            line["decision"] = "different"
    assert "makes the same decision on 1 of 2 problems" in of("published", told(lines))


def test_what_was_not_measured_is_said(told):
    lines = family_lines()
    lines += [
        cell("gpu", status="not installed", reason="no module", ratio=None, decision=None),
        cell("bad", status="failed", reason="It\n raised.", decision=None),
        cell("vague", ratio=0.99, verdict="inconclusive"),
    ]
    found = told([*lines, over_budget("slowest", 10)])
    assert "`bad` failed on 1 problem." in of("failed", found)
    assert "It raised." in of("failed", found)
    assert "`gpu`" in of("not installed", found)
    assert "1 of " in of("inconclusive", found)
    assert "projection, not measured: 31.8 min" in of("over budget", found)
    assert "110 of 7,001 attempts after 30 s" in of("over budget", found)


def test_growth_is_told_of_five_sizes(told):
    text = of("growth", told(family_lines()))
    assert "to the power 1.00 (1.00 to 1.00) for `even`, up to 2.50" in text
    assert "4 to 5 sizes from 5 to 80" in text
    assert of("growth", told(family_lines((10, 20, 40, 80)))) == ""


def test_without_a_claim_nothing_is_said_of_one(told):
    lines = [line | {"claim": None} for line in family_lines((10,))]
    assert of("published", told(lines)) == ""


def test_what_is_inconclusive_is_no_speed_up(told):
    lines = [
        cell(decision="reference"),
        cell("b", same_as="slow-copy", decision="same", ratio=0.98) | {"verdict": "inconclusive"},
    ]
    assert "`b` cannot be distinguished from `slow-copy`" in told(lines)[0].sentence


def test_only_failures(told):
    found = told([cell(status="failed", decision=None, cpu_s=None, phases={}, quality={})])
    assert found[0].sentence == "Nothing of `boxing` could be compared with `slow-copy`."
    assert found[0].detail == "The results contain 1 cell: 1 failed."


def test_mixed_environments_are_said(told):
    lines = family_lines((10,))
    lines[0] = lines[0] | {"environment": lines[0]["environment"] | {"cpu": "Another CPU"}}
    assert "measured in 2 different environments" in of("file", told(lines))


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


def test_a_projection_is_told_as_one(told):
    row = overview_row("Boxes", "no-copy", "compiled", boxes=1600)
    text = of("gain", told(declared([*family_lines(), *past_lines()], row)))
    assert_in_order(text, "`compiled` is at least 214 times as fast as `no-copy`", "no measurement")


def test_without_a_pair_to_compare_the_best_comparison_is_told(told):
    first = told(declared(past_lines((400,), ()), overview_row("Boxes", "no-copy", "missing")))[0]
    assert_in_order(first.sentence, "`sorted`", "153 times", "`no-copy`")


def test_quality_is_set_beside_what_was_compared_with(told):
    text = of("quality", told(past_lines((400,), ())))
    assert "`certified` has the best `max_widget_ms`, 20 % better than `no-copy`'s" in text
    assert "in 37.9 times `no-copy`'s CPU time" in text


def test_the_smallest_and_the_largest_gap_are_told(told):
    text = of("quality", told(past_lines()))
    assert_in_order(text, "gap", "`certified`", "boxes=400", "0.05 %", "`sorted`", "50.0 %")
    assert "gap" not in of("quality", told(family_lines()))


def test_goals_are_counted_and_those_not_met_are_named(told):
    lines = past_lines((400,), ())
    lines[1]["goals"] = [
        *lines[1]["goals"],
        goal("compiled is 36 times faster", "compiled", "times faster", 36, against="no-copy"),
        goal("compiled beats sorted", "compiled", "times faster", 1, against="sorted"),
    ]
    (found,) = [f for f in told(lines) if f.kind == "goals"]
    assert_in_order(
        found.sentence, "2 of 6", "missed", "compiled takes a second", "certified needs"
    )
    assert_in_order(found.sentence, "inconclusive", "36 times", "not measured", "beats sorted")
    assert not [f for f in told(family_lines()) if f.kind == "goals"]

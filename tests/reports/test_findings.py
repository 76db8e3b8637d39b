import pytest
from made_up_results import (
    assert_in_order,
    cell,
    family_lines,
    goal,
    over_budget,
    overview_row,
    past_lines,
    results_of,
)

from reports.family.data import families
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
    gain, better = found[:2]
    assert_in_order(gain.sentence, "`compiled`", "36.6 times", "`no-copy`", "same decision")
    assert_in_order(gain.detail, "boxes=400", "1.67 s", "61.2 s", "34.9 to 38.1")
    assert_in_order(better.sentence, "`certified`", "640 ms", "800 ms", "`no-copy`")
    assert_in_order(better.detail, "0.05 %", "25.0 %")


def test_todays_release_is_named_as_what_it_is(told):
    row = overview_row("Boxes", "no-copy", "compiled", today_is="a stand-in for Boxes 3")
    (gain, *_) = told(declared(past_lines((400,), ()), row))
    assert "`no-copy` (a stand-in for Boxes 3)" in gain.sentence


def test_a_family_without_overview_begins_with_its_fastest_with_the_same_decision(told):
    gain = told(family_lines())[0]
    assert_in_order(gain.sentence, "`no-copy`", "3.52 times", "`slow-copy`", "same decision")


def test_a_different_decision_is_never_a_speed_up(told):
    lines = family_lines((10,))
    for line in lines:
        if line["variant"] == "no-copy":
            line["decision"] = "different"
    found = told(lines)
    assert "`no-copy` must make the decision of `slow-copy`" in of("different decisions", found)
    others = " ".join(of(kind, found) for kind in KINDS if kind != "different decisions")
    assert "no-copy" not in others


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


def test_a_projection_is_told_as_one(told):
    row = overview_row("Boxes", "no-copy", "compiled", boxes=1600)
    text = of("gain", told(declared([*family_lines(), *past_lines()], row)))
    assert_in_order(text, "`compiled` is at least 214 times as fast as `no-copy`", "no measurement")


def test_without_a_pair_to_compare_the_best_comparison_is_told(told):
    first = told(declared(past_lines((400,), ()), overview_row("Boxes", "no-copy", "missing")))[0]
    assert_in_order(first.sentence, "`sorted`", "0.00653", "`no-copy`")


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

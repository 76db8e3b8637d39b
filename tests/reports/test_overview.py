"""The first screen of a report: its table and figure, from made-up cells."""

import math

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
from reports.family.overview import overview
from reports.family.shortfalls import goals_in_a_line
from reports.report.answers import answers
from reports.report.table import gains_table, published_table

from reports.core.formatting import MISSING
from reports.core.table import as_markdown
from reports.family.data import families
from reports.report.findings import gains
from reports.report.recorded import Recorded


def same(**fields):
    """Return the cell of a variant with the reference's decision."""
    fingerprint = cell()["fingerprint"]
    return cell("no-copy", same_as="slow-copy", decision="same", fingerprint=fingerprint, **fields)


WAY = overview_row(
    "Boxes", "no-copy", "compiled", 1, boxes=400, best="certified", published="quick-copy",
    today_is="a stand-in", next_step="Use `compiled`.",
)  # fmt: skip
TIMES = "\N{MULTIPLICATION SIGN}"


def rows(tmp_path, lines, *declared):
    held = [line | {"overview": [*declared]} for line in lines]
    found = families(results_of(tmp_path, held))
    table = overview(found)
    tables = (gains_table(table), published_table(table))
    return table, ["".join(as_markdown(one).splitlines()[2:]) for one in tables]


def test_a_row_has_what_was_published_measured_repeated_gained_and_proven(tmp_path):
    lines = [*family_lines(), *past_lines()]
    for line in lines:
        line["counter_enough"] = {"copies": 5}
    table, (gained, published) = rows(tmp_path, lines, WAY)
    row = table.iloc[0]
    assert (row["published"], row["published_before"], row["published_after"]) == (8, 1200, 150)
    assert row["measured_on"] == "crates[boxes=80,seed=1]/toy_rack:4"
    assert row["measured"] == pytest.approx(1 / 0.37)
    assert row["measured_low"] < row["measured"] < row["measured_high"]
    assert (row["done"], row["enough"]) == (1000, 5)
    ours = next(line for line in lines if "compiled@crates[boxes=400," in line["cell"])
    assert row["times_as_fast"] == pytest.approx(1 / ours["ratio"]["value"])
    assert row["low"] == pytest.approx(1 / ours["ratio"]["high"])
    assert row["gap_today"] == pytest.approx(0.25)
    assert row["gap_ours"] == pytest.approx(0.0005)
    for part in ("Boxes", "a stand-in", f"37{TIMES}", "1,000 copies; 5 suffice", "25 %, 0.05 %"):
        assert part in gained
    for part in ("Boxes", f"8.0{TIMES}", "20 → 2.5 min", f"2.7{TIMES}"):
        assert part in published


def test_two_that_were_compared_with_a_third_get_the_widest_interval(tmp_path):
    way = overview_row("Boxes", "half-copy", "no-copy", boxes=10, before="half-copy")
    table, _ = rows(tmp_path, family_lines(), way)
    row = table.iloc[0]
    assert row["times_as_fast"] == pytest.approx(0.6 / 0.35)
    assert row["low"] == pytest.approx(0.6 * 0.96 / (0.35 * 1.05))
    assert row["high"] == pytest.approx(0.6 * 1.05 / (0.35 * 0.96))
    assert row["measured"] == pytest.approx(0.6 / 0.37)
    assert row["published"] == 4, "of the change alone, not from the start of the ladder"


def test_what_was_stopped_is_projected_and_has_no_gap(tmp_path):
    way = WAY | {"problem": WAY["problem"].replace("400", "1600")}
    table, (said, _) = rows(tmp_path, past_lines(), way)
    row = table.iloc[0]
    assert row["basis"] == "projected"
    assert math.isnan(row["low"])
    assert math.isnan(row["gap_today"])
    assert "(projected)" in said
    assert "—, 0.05 %" in said


def test_of_what_was_stopped_without_progress_the_least_is_told(tmp_path):
    way = WAY | {"problem": WAY["problem"].replace("400", "1600")}
    lines = past_lines()
    for line in lines:
        line["settings"] = {"budget": 30.0}
        if line["status"] == "over budget":
            line |= {"projection_s": None, "progress": None}
    table, (said, _) = rows(tmp_path, lines, way)
    compiled = next(line for line in lines if "/compiled@crates[boxes=1600" in line["cell"])
    assert table["times_as_fast"][0] == pytest.approx(30 / compiled["wall_s"]["median"])
    assert "(stopped)" in said
    assert "≥ " in said


def test_work_that_nobody_declares_enough_of_is_set_beside_that_of_ours(tmp_path):
    way = overview_row("Boxes", "slow-copy", "quick-copy", boxes=10)
    table, _ = rows(tmp_path, family_lines(), way)
    assert (table["done"][0], table["enough"][0]) == (10_000, 3_700)
    way = overview_row("Boxes", "quick-copy", "slow-copy", boxes=10)
    table, (said, _) = rows(tmp_path, family_lines(), way)
    assert math.isnan(table["done"][0])
    assert "copies;" not in said


def test_a_different_decision_is_never_a_speed_up(tmp_path):
    lines = [
        cell(decision="reference"),
        cell("quick-copy", ratio=0.1, same_as="slow-copy", decision="different", claim=None),
    ]
    way = overview_row("Boxes", "slow-copy", "quick-copy", boxes=10)
    table, (said, _) = rows(tmp_path, lines, way)
    assert math.isnan(table["times_as_fast"][0])
    assert table["decision"][0] == "different"
    assert TIMES not in said


def test_ours_that_decides_for_itself_says_so(tmp_path):
    lines = [cell(decision="reference"), cell("even", ratio=0.5)]
    way = overview_row("Boxes", "slow-copy", "even", boxes=10)
    table, (said, _) = rows(tmp_path, lines, way)
    assert table["decision"][0] == "own"
    assert "another decision" in said


def test_a_family_that_declares_nothing_gets_a_row_of_what_there_is(tmp_path):
    table, (said, _) = rows(tmp_path, family_lines((10,)))
    row = table.iloc[0]
    assert (row["today"], row["ours"]) == ("slow-copy", "no-copy")
    assert "boxing: no-copy against slow-copy" in said
    assert row["published"] == 8


@pytest.mark.parametrize(
    "lines",
    [
        [cell(status="failed", decision=None, cpu_s=None, wall_s=None, quality={}, counters={})],
        [over_budget("slow-copy", 10), cell("gpu", status="not installed", decision=None)],
        [cell()],
    ],
)
def test_a_family_that_compares_nothing_gets_a_row_of_dashes(tmp_path, lines):
    _, (said, published) = rows(tmp_path, lines)
    problem = "`crates[boxes=10,seed=1]/toy_rack:4`"
    assert said == f"| [boxing](#boxing) | slow-copy | — | — | — | {problem} |"
    assert published == ""


def test_rows_of_problems_that_are_not_there_are_left_out(tmp_path):
    elsewhere = WAY | {"system": "Elsewhere", "problem": "crates[boxes=7]/toy_rack:4"}
    table, _ = rows(tmp_path, [*family_lines(), *past_lines()], elsewhere, WAY)
    assert table["system"].tolist() == ["Boxes"]


def test_goals_are_told_in_one_sentence_with_those_that_are_not_met(tmp_path):
    lines = [*family_lines(), *past_lines()]
    beaten = goal("compiled beats shipped", "compiled", "times faster", 2, against="shipped")
    lines[-1]["goals"] = [beaten]
    said = goals_in_a_line(families(results_of(tmp_path, lines)))
    assert_in_order(said, "2 of 5", "missed", "compiled takes a second", "certified needs")
    assert_in_order(said, "not measured", "compiled beats shipped", "shipped: not run")
    assert goals_in_a_line(families(results_of(tmp_path, family_lines()))) == ""


def answered(tmp_path, lines, *declared):
    results = results_of(tmp_path, [line | {"overview": [*declared]} for line in lines])
    return dict(answers(families(results), results, Recorded(None)))


def test_the_first_screen_answers_what_was_gained_how_certain_and_what_next(tmp_path):
    said = answered(tmp_path, [*family_lines(), *past_lines((400,), ())], WAY)
    gained, certain, following = said.values()
    assert_in_order(gained, "Same decision", f"37{TIMES}")
    assert_in_order(gained, "Better decision", "Boxes", "640 ms", "800 ms", "0.05 %")
    assert_in_order(certain, "16 checks", "99 %", "27 of 27", "2 of 4 goals")
    assert_in_order(following, "Use `compiled`.", "shardbench compare boxing")


def test_what_is_not_certain_is_said(tmp_path):
    lines = [*family_lines(), *past_lines()]
    lines[1] |= {"decision": "different"}
    lines[2] |= {"verdict": "inconclusive"}
    way = WAY | {"problem": WAY["problem"].replace("400", "1600")}
    certain = answered(tmp_path, lines, way)["Can I trust it?"]
    assert_in_order(certain, "1 of 17 checks failed", "of 26 comparisons", "not measured")


def test_without_anything_to_compare_the_answers_say_so(tmp_path):
    gained, *_ = answered(tmp_path, [cell()]).values()
    assert gained.startswith("No variant is faster")


def test_a_gain_within_the_noise_is_no_gain(tmp_path):
    """A speed-up whose interval contains 1 is not among the gains of the first screen."""
    wide = {"value": 0.6, "low": 0.3, "high": 1.4, "pairs": 6}
    pair = [cell(decision="reference"), same() | {"ratio": wide}]
    gained, *_ = answered(tmp_path, pair).values()
    assert gained.startswith("No variant is faster")


def test_an_unknown_time_stands_in_no_sentence(tmp_path):
    """A time that was not measured is left out of sentences, not written as a dash."""
    lines = [cell(decision="reference", cpu_s=None), same(ratio=0.5)]
    gained, *_ = answered(tmp_path, lines).values()
    assert "as fast" in gained
    assert MISSING not in gained


def test_the_releases_default_decision_is_rated_where_the_row_names_it(tmp_path):
    """With `rated`, gap, quality and sentences are of that variant, and times still of `today`."""
    row = {**WAY, "rated": "sorted"}
    found = families(results_of(tmp_path, [line | {"overview": [row]} for line in past_lines()]))
    table = overview(found).iloc[0]
    assert (table["today"], table["rated"]) == ("no-copy", "sorted")
    assert table["gap_today"] == pytest.approx(0.5)
    (better,) = [each for each in gains(found[0]) if each.kind == "better decision"]
    assert "with `sorted`." in better.sentence
    assert "`sorted` is 50.0 % from it" in better.detail

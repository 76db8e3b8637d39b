"""What a report says of systems, claims and shortfalls, from made-up cells."""

from dataclasses import replace

import pytest
from made_up_results import (
    BOXES,
    DECLARED,
    assert_in_order,
    cell,
    family_lines,
    over_budget,
    past_lines,
    results_of,
)

from reports.core.table import as_markdown
from reports.family.data import families
from reports.report.findings import certainty, family_findings, repetition
from reports.report.systems import numbers_table, shown_systems, systems_table
from reports.statements import readings, systems

TIMES = "\N{MULTIPLICATION SIGN}"
LARGE = "crates[boxes=1600,seed=1]/toy_rack:4"


@pytest.fixture
def report(tmp_path):
    """Return a function: lines and statements -> the two tables, how certain, the findings."""

    def make(lines, declared=DECLARED):
        results = results_of(tmp_path, lines)
        cells = {found.id: found for found in results.records}
        (family,) = families(results, declared)
        rows = systems(family.statements, cells)
        goals = readings("goal", family.statements, cells)
        shown = shown_systems(rows, [])
        tables = [
            "".join(as_markdown(table(shown)).splitlines()[2:])
            for table in (systems_table, numbers_table)
        ]
        certain = " ".join(certainty(results.records, goals))
        return *tables, certain, family_findings(family, rows, goals)

    return make


def sentences(findings, kind):
    return " ".join(f"{f.sentence} {f.detail}" for f in findings if f.kind == kind)


def same(**fields):
    """Return the cell of a variant with the reference's decision."""
    return cell("no-copy", same_as="slow-copy", decision="same", **fields)


def test_a_system_is_told_in_its_rows_and_the_findings(report):
    """Its speed-up, use and baseline; its better decision, repeated work and goals."""
    lines = [line | {"counter_enough": {"copies": 5}} for line in past_lines((400,), ())]
    row, numbers, certain, findings = report([*family_lines(), *lines])
    assert_in_order(row, "Boxes", f"37{TIMES}", "the same", "`compiled`", "a stand-in", "here")
    assert_in_order(numbers, f"37{TIMES}", "25.0 % → 0.05 %", "5 suffice", "boxes=400")
    assert_in_order(certain, "16 checks", "27 of 27", "2 of 4 goals are met, 2 missed")
    assert [finding.kind for finding in findings[:2]] == ["gain", "better decision"]
    better = sentences(findings, "better decision")
    assert_in_order(better, "`certified`", "640 ms", "`no-copy` 800 ms", "0.05 %")


def test_what_was_stopped_is_a_bound(report):
    """A projection is marked, and named as what it is."""
    declared = {"boxing": (replace(BOXES, problem=LARGE),)}
    row, _, _, findings = report(past_lines(), declared)
    assert_in_order(row, f"≥ 214{TIMES}", "unknown", "here, projected")
    assert f"≥214{TIMES} as fast" in sentences(findings, "gain")


@pytest.mark.parametrize(
    "lines",
    [
        [over_budget("slow-copy", 10), cell("gpu", status="not installed", decision=None)],
        [cell(decision="reference"), same(ratio=0.1) | {"decision": "different"}],
    ],
)
def test_nothing_compared_is_no_row_and_no_gain(report, lines):
    """A different decision is never a speed-up, either."""
    row, _, _, findings = report(lines)
    assert row == ""
    assert findings[0].sentence == "Nothing of `boxing` could be compared with `slow-copy`."


def test_a_gain_within_the_noise_is_no_gain(report):
    """The finding says that the two variants cannot be distinguished."""
    wide = {"value": 0.6, "low": 0.3, "high": 1.4, "pairs": 6}
    *_, findings = report([cell(decision="reference"), same() | {"ratio": wide}], {})
    assert "cannot be distinguished from `slow-copy`" in sentences(findings, "gain")


def test_a_family_without_headlines_gets_one_of_its_fastest_variant(report):
    """The fastest with the same decision is compared with the reference."""
    row, _, _, (gain, *_) = report(family_lines((10,)), {})
    assert "boxing: no-copy against slow-copy" in row
    assert_in_order(gain.sentence, "`no-copy`", "`slow-copy`", "same decision")


def test_repeated_work_is_told_of_the_cell_with_most_of_it(tmp_path):
    """Work that is no more than enough is not told."""

    def counted(variant, copies, boxes=10):
        enough = {"copies": 1, "lookups": "missing"}
        return cell(variant, boxes=boxes, counters={"copies": copies}, counter_enough=enough)

    lines = [counted("slow-copy", 7), counted("slow-copy", 9, 20), counted("half-copy", 2, 20)]
    (finding,) = repetition(results_of(tmp_path, lines).records)
    assert_in_order(finding.sentence + finding.detail, "`copies`", "9 in `slow-copy`", "boxes=20")
    assert not list(repetition(results_of(tmp_path, [counted("no-copy", 1)]).records))

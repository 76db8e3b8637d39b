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
from reports.report.findings import answers, family_findings, repetition, shortfalls
from reports.report.systems import gains_table
from reports.statements import readings, systems

TIMES = "\N{MULTIPLICATION SIGN}"
LARGE = "crates[boxes=1600,seed=1]/toy_rack:4"


@pytest.fixture
def report(tmp_path):
    """Return a function: lines and statements -> the table of gains, the answers, the findings."""

    def make(lines, declared=DECLARED):
        results = results_of(tmp_path, lines)
        cells = {found.id: found for found in results.records}
        (family,) = families(results, declared)
        rows = systems(family.statements, cells)
        goals = readings("goal", family.statements, cells)
        table = "".join(as_markdown(gains_table(rows, {})).splitlines()[2:])
        said = dict(answers(rows, {}, results.records, goals, results.notes))
        return table, list(said.values()), family_findings(family, rows, goals)

    return make


def sentences(findings, kind):
    return " ".join(f"{f.sentence} {f.detail}" for f in findings if f.kind == kind)


def same(**fields):
    """Return the cell of a variant with the reference's decision."""
    return cell("no-copy", same_as="slow-copy", decision="same", **fields)


def test_a_system_is_told_in_its_row_the_answers_and_the_findings(report):
    """Its speed-up, its better decision, repeated work, goals, certainty and the next step."""
    lines = [line | {"counter_enough": {"copies": 5}} for line in past_lines((400,), ())]
    table, (gained, certain, following), findings = report([*family_lines(), *lines])
    assert_in_order(table, "Boxes", "a stand-in", f"37{TIMES}", "25.0 % → 0.05 %", "5 suffice")
    assert_in_order(gained, f"37{TIMES}", "(a stand-in)", "640 ms", "800 ms", "0.05 %")
    assert_in_order(certain, "16 checks", "27 of 27", "2 of 4 goals", "takes a second")
    assert_in_order(following, "Use `compiled`.", "shardbench compare boxing")
    assert [finding.kind for finding in findings[:2]] == ["gain", "better decision"]


def test_what_was_stopped_is_a_bound_and_no_gain_of_the_first_screen(report):
    """A projection is marked, and named as what it is."""
    declared = {"boxing": (replace(BOXES, problem=LARGE),)}
    table, (gained, *_), findings = report(past_lines(), declared)
    assert f"≥ 214{TIMES} (projected)" in table
    assert gained.startswith("No variant was measured")
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
    table, (gained, _, _), findings = report(lines)
    assert table == ""
    assert gained.startswith("No variant was measured")
    assert findings[0].sentence == "Nothing of `boxing` could be compared with `slow-copy`."


def test_a_gain_within_the_noise_is_no_gain(report):
    """A speed-up whose interval contains 1 is not among the gains of the first screen."""
    wide = {"value": 0.6, "low": 0.3, "high": 1.4, "pairs": 6}
    _, (gained, _, _), findings = report([cell(decision="reference"), same() | {"ratio": wide}], {})
    assert gained.startswith("No variant was measured")
    assert "cannot be distinguished from `slow-copy`" in sentences(findings, "gain")


def test_a_family_without_headlines_gets_one_of_its_fastest_variant(report):
    """The fastest with the same decision is compared with the reference."""
    table, _, (gain, *_) = report(family_lines((10,)), {})
    assert "boxing: no-copy against slow-copy" in table
    assert_in_order(gain.sentence, "`no-copy`", "`slow-copy`", "same decision")


def test_what_cannot_be_compared_is_told_by_outcome(tmp_path):
    """Each kind of shortfall is one finding, with the number of its cells and their variants."""
    lines = [
        *family_lines((10,)),
        cell("gpu", status="not installed", decision=None),
        *(cell("bad", boxes=boxes, status="failed", decision=None) for boxes in (10, 20)),
        cell("vague", ratio=0.99) | {"verdict": "inconclusive"},
        cell("wrong", same_as="slow-copy", decision="different"),
        over_budget("slowest", 10),
    ]
    findings = list(shortfalls(results_of(tmp_path, lines).records))
    told = [(f.kind, f.sentence.split()[0], f.sentence.split("`")[1]) for f in findings]
    assert told == [
        ("different decision", "1", "wrong"),
        ("failed", "2", "bad"),
        ("over budget", "1", "slowest"),
        ("inconclusive", "1", "vague"),
        ("not installed", "1", "gpu"),
    ]


def test_repeated_work_is_told_of_the_cell_with_most_of_it(tmp_path):
    """Work that is no more than enough is not told."""

    def counted(variant, copies, boxes=10):
        enough = {"copies": 1, "lookups": "missing"}
        return cell(variant, boxes=boxes, counters={"copies": copies}, counter_enough=enough)

    lines = [counted("slow-copy", 7), counted("slow-copy", 9, 20), counted("half-copy", 2, 20)]
    (finding,) = repetition(results_of(tmp_path, lines).records)
    assert_in_order(finding.sentence + finding.detail, "`copies`", "9 in `slow-copy`", "boxes=20")
    assert not list(repetition(results_of(tmp_path, [counted("no-copy", 1)]).records))

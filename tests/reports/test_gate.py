"""The verdict as Markdown: first the headline, then only deviations. Texts from files are never
markup.
"""

import re
import shlex

import pytest
from made_up_cells import PROBLEM, cell_of, line

from harness.gate.expectations import Expectation, Expectations, MadeWith
from harness.gate.judging import Deviation, GateVerdict, Judged, judge_cells
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from reports.core.formatting import code
from reports.gate import failure_markdown, headline, lines, look_closer, markdown, notes


def judged(*kinds: str | None) -> GateVerdict:
    """Return a verdict with a cell for each kind of deviation; None is a cell as expected."""
    return GateVerdict(
        tuple(
            Judged(
                CellId.parse(f"boxing/v{place}@{PROBLEM}"),
                None,
                cell_of(line(f"v{place}")),
                (Deviation("counters.copies", kind, 1, 2),) if kind else (),
            )
            for place, kind in enumerate(kinds)
        ),
        {},
    )


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        ([None, None], "As expected: all 2 cells."),
        (["win", "regression", "regression", None], "Regression: 2 of 4 cells are worse than"),
        (["not measured", None], "Error: 1 of 2 cells could not be measured."),
        (["changed", "new"], "Changed: 1 of 2 cells is other than expected, 1 not expected yet."),
    ],
)
def test_the_headline_says_the_worst_first(kinds, sentence):
    """The worst kind of deviation begins the headline, with its number of cells."""
    assert headline(judged(*kinds)).startswith(sentence)


LOW, HIGH = (0.3, 0.8), (0.9, float("inf"))


@pytest.mark.parametrize(
    ("what", "kind", "values", "text"),
    [
        ("counters.a", "regression", (1, 1083), "a: 1,083, expected 1: worse, up 1,080 times"),
        ("counters.a", "win", (1000, 990), "a: 990, expected 1,000: better, down 1 %"),
        ("counters.a", "regression", (0, 3), "a: 3, expected 0: worse, up"),
        (
            "quality.a",
            "changed",
            (1.000001, 1.000002),
            "a: 1.000002, expected 1.000001: changed, up",
        ),
        ("quality.a", "regression", (1e-320, 1e300), "a: 1.00e+300, expected 1.00e-320: worse, up"),
        ("ratio", "regression", (LOW, HIGH), "ratio over slow: from 0.900, expected 0.300 to 0.8"),
        ("ratio", "inconclusive", (LOW, None), "ratio over slow: —, expected 0.300 to 0.800: per"),
        ("status", "regression", ("ok", "failed"), "status: failed, expected ok: worse"),
        ("cell", "new", (None, "ok"), "cell: ok, expected —: new"),
    ],
)
def test_a_row_says_what_was_expected_measured_and_changed(what, kind, values, text):
    """Values are rounded unless they would look equal, and a change has a direction and a size."""
    deviation = Deviation(what, kind, *values, "no luck.")
    cell = Judged(CellId.parse("boxing/quick@p/t:4"), None, cell_of(line()), (deviation,))
    heading, told = lines([cell])
    assert heading == "boxing/quick@p/t:4"
    assert told.startswith(f"  {text}")
    assert told.endswith(", no luck")


def test_only_what_deviates_is_above_the_fold():
    """Cells as expected are folded below those that deviate; of thousands of rows 500 are shown."""
    text = markdown(judged(None, "regression"), ["a note"], [("To accept:", ["mv new old"])])
    before, _, folded = text.partition("<details>")
    assert before.startswith("## Regression: 1 of 2 cells is worse than expected\n")
    assert f"| `boxing/v1@{PROBLEM}` | `copies` | `1` | `2` | `worse, up 2 times` |" in before
    assert "\n`a note`\n" in before
    assert "\nTo accept:\n- `mv new old`\n" in before
    assert ("v0" in before, "v0" in folded, "v1" in folded) == (False, True, False)
    assert "<details>" not in markdown(judged(None, None), [], [])
    many = markdown(judged(*["new"] * 2000), [], [])
    assert many.count("\n| `boxing") == 500
    assert "1,500 more differences are left out." in many


def test_versions_and_changed_files_are_notes():
    """Other versions and files that have changed may explain deviations."""
    made_with = MadeWith("3.11.7", {"widgets": "1.1", "gone": "2"})
    cell = cell_of(line())
    expectations = Expectations({cell.id: Expectation()}, made_with=made_with)
    told = notes(judge_cells(expectations, {cell.id: cell}), [("old", "new")])
    assert "gone 2 → not there, widgets 1.1 → 1.2." in told[0]
    assert told[1] == "old is new now: the file that it is given by has changed."


HOSTILE = [
    *("a|b", "``` ` ``", "`", "<script>alert(1)</script>", "<!-- -->", "a\nb | c\n| d", " "),
    *("[x](javascript:alert(1))", "**bold** _it_ #1 @someone", "\x1b[31m\x00", "\u202eabc"),
    *("a\\|b\\", "&lt;"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_comes_from_a_file_stays_text_in_its_field(text):
    """A text of results is code, whose fence it cannot close, in one field of one row."""
    cell = cell_of(line(fingerprint=text, verdict_reason=text, against=text))
    deviations = (
        Deviation(f"counters.{text}", "new", None, 3),
        Deviation("fingerprint", "changed", text, "x", text),
        Deviation("ratio", "inconclusive", (1, 2), None, text),
    )
    cell_id = CellId("a", text, ProblemId(WorkloadSpec(text), "t", 4))
    verdict = GateVerdict((Judged(cell_id, None, cell, deviations),), {})
    written = markdown(verdict, [text], [("To look:", look_closer(verdict.judged[0]))])
    table = [each for each in written.splitlines() if each.startswith("|")]
    assert len(table) == 2 + len(deviations)
    for each in table:
        assert len(re.findall(r"(?<!\\)\|", each)) == 6, each
    outside = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", written + failure_markdown(text))
    assert not set("<[*_@`\x1b\x00\u202e") & set(outside), outside
    fence = re.match("`+", code(text))[0]
    assert fence not in re.findall("`+", code(text)[len(fence) : -len(fence)])


def test_the_commands_that_look_closer_can_be_typed():
    """They are quoted for a shell, and ask for the problem as the user gave it."""
    cell = CellId.parse("embedding/it's@tables.csv#1234/mine:4")
    expected = Expectation(given="here/tables.csv/machines.csv#mine:4", against="upstream")
    compare, profile = look_closer(Judged(cell, expected, None, ()))
    where = ["-w", "here/tables.csv", "-t", "machines.csv#mine", "-n", "4"]
    assert shlex.split(compare) == [
        *("shardbench", "compare", "embedding", *where),
        *("--variants", "it's", "--against", "upstream", "--details"),
    ]
    assert shlex.split(profile) == ["shardbench", "profile", "embedding", "it's", *where]

"""The verdict as Markdown: first the headline, then only deviations. Texts from files are never
markup.
"""

import re
import shlex
from collections.abc import Sequence

import pytest
from made_up_cells import PROBLEM, ended, line

from harness.gate.difference import Deviation
from harness.gate.expectations import Expectation, Expectations, MadeWith, Rules
from harness.gate.gate import GateVerdict, Judged, judge_cells
from harness.model.cell import Cell
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from reports.core.escaping import code
from reports.gate import failure_markdown, headline, look_closer, markdown, notes, rows


def judged(*kinds: str | None) -> GateVerdict:
    """Return a verdict with a cell for each kind of deviation; None is a cell as expected."""
    return GateVerdict(
        tuple(
            Judged(
                CellId.parse(f"boxing/v{place}@{PROBLEM}"),
                None,
                Cell.of(line(f"v{place}")),
                (Deviation("counters.copies", kind, 1, 2),) if kind else (),
            )
            for place, kind in enumerate(kinds)
        ),
        {},
    )


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        ([None], "As expected: the only cell."),
        ([None, None], "As expected: all 2 cells."),
        (["regression"], "Regression: 1 of 1 cell is worse than expected."),
        (["win", "regression", "regression", None], "Regression: 2 of 4 cells are worse than"),
        (["not measured", None], "Error: 1 of 2 cells could not be measured."),
        (["missing", "missing"], "Missing: 2 of 2 cells are not there as expected."),
        (["changed", "new"], "Changed: 1 of 2 cells is other than expected, 1 not expected yet."),
        (["win", None], "Win: 1 of 2 cells is better than expected."),
        (["new", None], "New: 1 of 2 cells is not expected yet."),
        (["inconclusive", None], "Inconclusive: 1 of 2 cells is perhaps slower than expected."),
    ],
)
def test_the_headline_says_the_worst_first(kinds: Sequence[str | None], sentence: str):
    assert headline(judged(*kinds)).startswith(sentence)


LOW, HIGH = (0.3, 0.8), (0.9, float("inf"))


@pytest.mark.parametrize(
    ("what", "kind", "values", "note", "texts"),
    [
        ("counters.copies", "regression", (1, 1083), "", "copies|1|1,083|worse, up 1,080 times"),
        ("counters.copies", "win", (1000, 990), "", "copies|1,000|990|better, down 1 %"),
        ("counters.copies", "regression", (0, 3), "", "copies|0|3|worse, up"),
        (
            "quality.cost",
            "regression",
            (1.000001, 1.000002),
            "",
            "cost|1.000001|1.000002|",
        ),
        ("quality.cost", "regression", (1e-320, 1e300), "", "cost|1.00e-320|1.00e+300|worse, up"),
        ("ratio", "regression", (LOW, HIGH), "", "ratio over slow|0.300 to 0.800|from 0.900|worse"),
        ("ratio", "inconclusive", (LOW, None), "too short.", "—|perhaps worse, too short"),
        ("status", "regression", ("ok", "failed"), "no luck", "status|ok|failed|worse, no luck"),
        ("cell", "new", (None, "ok"), "", "cell|—|ok|new"),
    ],
)
def test_a_row_says_what_was_expected_measured_and_changed(what, kind, values, note, texts):
    deviation = Deviation(what, kind, *values, note)
    cell = Judged(CellId.parse("boxing/quick@p/t:4"), None, Cell.of(line()), (deviation,))
    (row,) = rows([cell])
    assert texts in "|".join((row.what, row.expected, row.measured, row.change))


def test_only_what_deviates_is_above_the_fold():
    text = markdown(judged(None, "regression"), [], [])
    before, _, folded = text.partition("<details>")
    assert before.startswith("## Regression: 1 of 2 cells is worse than expected\n")
    assert f"| `boxing/v1@{PROBLEM}` | `copies` | `1` | `2` | `worse, up 2 times` |" in before
    assert "v0" not in before
    assert "v0" in folded
    assert "v1" not in folded
    assert text.endswith("</details>\n")


def test_nothing_is_folded_away_where_all_is_as_expected():
    text = markdown(judged(None, None), [], [])
    assert text.startswith("## As expected: all 2 cells\n")
    assert "<details>" not in text


def test_notes_and_next_steps_are_told():
    text = markdown(judged("win"), ["a note"], [("To accept:", ["mv new old"])])
    assert "\n`a note`\n" in text
    assert "\nTo accept:\n- `mv new old`\n" in text


def test_thousands_of_rows_are_cut():
    text = markdown(judged(*["new"] * 2000), [], [])
    assert text.count("\n| `boxing") == 500
    assert "1,500 more differences are left out." in text


def test_versions_and_changed_files_are_notes():
    made_with = MadeWith("3.11.7", {"widgets": "1.1", "gone": "2"})
    cell = Cell.of(line())
    expectations = Expectations({cell.id: Expectation()}, Rules(made_with=made_with))
    verdict = judge_cells(expectations, {cell.id: cell})
    told = notes(verdict, [("old", "new")])
    assert "gone 2 → not there, widgets 1.1 → 1.2." in told[0]
    assert told[1] == "old is new now: the file that it is given by has changed."


HOSTILE = [
    "a|b",
    "``` ` ``",
    "`",
    "<script>alert(1)</script>",
    "<!-- -->",
    "a\nb | c\n| d",
    "[x](javascript:alert(1))",
    "**bold** _it_ #1 @someone",
    "\x1b[31m\x00",
    "\u202eabc",
    "a\\|b\\",
    "&lt;",
    " ",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_comes_from_a_file_stays_text_in_its_field(text: str):
    cell = Cell.of(line(fingerprint=text, verdict_reason=text, against=text))
    deviations = (
        Deviation(f"counters.{text}", "new", None, 3),
        Deviation("fingerprint", "changed", text, "x", text),
        Deviation("ratio", "inconclusive", (1, 2), None, text),
    )
    cell_id = CellId("a", text, ProblemId(WorkloadSpec(text), "t", 4))
    verdict = GateVerdict((Judged(cell_id, None, cell, deviations),), {})
    written = markdown(verdict, [text], [("To look:", look_closer(verdict.judged[0]))])
    lines = written.splitlines()
    table = [each for each in lines if each.startswith("|")]
    assert len(table) == 2 + len(deviations)
    for each in table:
        assert len(re.findall(r"(?<!\\)\|", each)) == 6, each
    outside = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", written)
    assert not set("<[*_@\x1b\x00\u202e") & set(outside), outside
    assert "`" not in outside


@pytest.mark.parametrize("text", HOSTILE)
def test_code_is_closed_where_it_ends(text: str):
    written = code(text)
    fence = re.match("`+", written)
    assert fence is not None
    inside = written[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)
    assert "\n" not in written


def test_a_failure_is_told_in_markdown():
    text = failure_markdown("no | <b>cell</b>\nat all")
    assert text.startswith("## Error: the gate failed, so nothing is judged\n")
    assert "`no | <b>cell</b>\\nat all`" in text


def test_the_commands_that_look_closer_can_be_typed():
    problem = "synthetic[tables=2,seed=1]/dgx_h100:16"
    cell = CellId.parse(f"embedding/it's@{problem}")
    compare, profile = look_closer(Judged(cell, Expectation(against="upstream"), None, ()))
    where = ["-w", "synthetic[tables=2,seed=1]", "-t", "dgx_h100", "-n", "16"]
    assert shlex.split(compare) == [
        *("shardbench", "compare", "embedding", *where),
        *("--variants", "it's", "--against", "upstream", "--details"),
    ]
    assert shlex.split(profile) == ["shardbench", "profile", "embedding", "it's", *where]


def test_they_ask_for_the_problem_as_it_is_given():
    cell = CellId.parse("embedding/compiled@tables.csv#1234/mine:4")
    expected = Expectation(given="here/tables.csv/machines.csv#mine:4")
    compare, _ = look_closer(Judged(cell, expected, Cell.of(ended("quick", "ok")), ()))
    assert "-w here/tables.csv -t 'machines.csv#mine' -n 4" in compare

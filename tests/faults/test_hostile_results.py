"""Results files with any content: each cell is shown completely or left out with a note."""

import copy
import json
from functools import partial

import pytest
from hostile import TEXTS, change, changes, read_or_refused
from hypothesis import example, given, settings, strategies as st
from made_up_results import DECLARED, cell, family_lines, over_budget, past_lines, write

from harness.store.cells import CellStore
from reports.core.columns import cell_table
from reports.core.frames import read_results
from reports.family.data import families
from reports.family.page import ALL, goals_table, problems_table
from reports.report.findings import certainty, family_findings
from reports.report.page import environment_table, write_report
from reports.report.systems import numbers_table, system_lines
from reports.statements import readings, systems

WHOLE = past_lines((400,))[1] | {"against": "slow-copy"}
OTHER = cell(decision="reference")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("results") / "results.jsonl"


def told(path):
    """Read results and make all parts of a report except the figures, which take seconds."""
    results = read_results(path)
    environment_table(results.records)
    cells = {cell.id: cell for cell in results.records}
    for family in families(results, DECLARED):
        rows = systems(family.statements, cells)
        goals = readings("goal", family.statements, cells)
        list(certainty(results.records, goals))
        numbers_table(rows)
        system_lines(rows)
        family_findings(family, rows, goals)
        cell_table(family.records, *ALL)
        goals_table(goals)
        problems_table(family)
    return results


def records(path):
    return CellStore(path).entries


@settings(max_examples=15)
@given(content=st.binary(max_size=200) | st.text('{}[]":,0\n e-', max_size=60).map(str.encode))
@example(content=b"[" * 10**6 + b"\n")
@example(content=b'{"schema": ' + b"9" * 5000 + b"}\n")
@example(content=b'{"schema": 1e400}\n')
@example(content=b'{"schema": NaN}\n')
@example(content=b"\xff\xfe\n\x00\n\r\n")
@example(content=b"\n" * 10_000)
@example(content=b'"' + b"x" * 10**7 + b'"\n')
def test_any_bytes_are_refused_in_one_sentence_or_hold_nothing(path, content):
    """Large and deep lines take no longer than others."""
    path.write_bytes(content)
    assert read_or_refused(partial(read_results, path), str(path)) is None
    assert not read_or_refused(partial(records, path), str(path))


@settings(max_examples=15)
@given(wanted=changes(WHOLE))
@example(wanted=[(("ratio", "value"), "put", 0)])
@example(wanted=[(("cpu_s", "median"), "put", 10**400)])
@example(wanted=[(("gpus",), "put", 0)])
@example(wanted=[(("environment", "packages"), "put", [1])])
@example(wanted=[(("environment", "cpu"), "put", [[]])])
@example(wanted=[(("settings",), "put", {"budget": "x"})])
@example(wanted=[(("quality", "max_widget_ms"), "put", 1e-320)])
@example(wanted=[(("decision",), "put", "different")])
def test_a_changed_line_is_left_out_or_shown_and_the_other_is_shown(path, wanted):
    """A note says what is left out."""
    line = copy.deepcopy(WHOLE)
    change(line, wanted)
    path.write_text(json.dumps(line) + "\n" + json.dumps(OTHER) + "\n")
    results = read_or_refused(partial(told, path), str(path))
    if results is not None:
        assert OTHER["cell"] in set(results.cells["cell"])
        assert len(results.records) + len(results.notes) >= 1
        assert all(len(note) < 1000 for note in results.notes)
    read_or_refused(partial(records, path), str(path))


EXTREMES = (0, 1e-99, 1e99, 10**90, 1e-15, 1e15, 3)


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_drawn_of_any_numbers(tmp_path, seed):
    """Zero, tiny and huge values have axes."""
    numbers = [*EXTREMES[seed:], *EXTREMES[:seed]]
    lines = [*family_lines((10, 20, 40)), *past_lines((400,), (400,)), over_budget("late", 20)]
    for place, line in enumerate(lines):
        value = numbers[place % len(numbers)]
        line |= {"size": value, "projection_s": value and line["projection_s"]}
        for name in ("cpu_s", "wall_s"):
            if line[name]:
                line[name] = {"median": value, "samples": [value]}
        if line["ratio"] and value:
            low, high = ((0, None), (1e-300, 1e300))[place % 2]
            line["ratio"] = {"value": value, "low": low, "high": high, "pairs": 1}
        for name in ("quality", "phases"):
            line[name] = dict.fromkeys(line[name], value)
        line["counters"] = dict.fromkeys(line["counters"], int(value))
        line["peak_memory_bytes"] = min(int(value), 2**63 - 1)
    page = write_report(write(tmp_path / "results.jsonl", lines), tmp_path / "out").page
    assert page.stat().st_size


@pytest.mark.parametrize("text", [text for text in TEXTS if "@" not in text])
def test_texts_of_every_kind_can_be_told(path, text):
    """All parts of a report are made of them."""
    line = copy.deepcopy(WHOLE) | dict.fromkeys(("reason", "source", "summary", "purpose"), text)
    assert told(write(path, [line, OTHER])).records

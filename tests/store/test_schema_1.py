"""Results files of schema 1, from before typed cells, are read as they were written."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.model.cell import Cell
from harness.store.results import parse_line, read_whole, to_json
from reports.core.frames import read_results

FILE = Path(__file__).with_name("data") / "schema_1.jsonl"
LINES = FILE.read_text(encoding="utf-8").splitlines()
GONE = ("goals",)
"""Fields that these lines have, and that are ignored."""


NEWER = {"clock", "front", "remark", "work"}
"""Fields that these lines were written without."""


def holds(record: Any, line: Any) -> bool:
    """Return whether a record contains all values of a line; it may have newer fields as well."""
    if isinstance(line, dict):
        return all(name in record and holds(record[name], line[name]) for name in line)
    return bool(record == line)


@pytest.mark.parametrize("line", LINES, ids=[json.loads(line)["cell"] for line in LINES])
def test_a_line_is_a_cell_that_is_written_as_it_was(line: str):
    cell = parse_line(line.encode())
    assert isinstance(cell, Cell)
    record = json.loads(to_json(cell.record()))
    kept = {name: value for name, value in json.loads(line).items() if name not in GONE}
    assert holds(record, kept)
    assert record.keys() - kept.keys() == NEWER


def test_the_lines_hold_what_a_cell_can_say():
    """Every field has a value in some line, since a field that is always empty is not tested."""
    filled = {name for line in LINES for name, value in json.loads(line).items() if value}
    record = Cell.of(json.loads(LINES[0])).record()
    assert record.keys() - filled == NEWER


def test_a_report_and_the_gate_read_the_file():
    results = read_results(FILE)
    assert (len(results.cells), results.notes) == (len(LINES), ())
    assert {str(cell) for cell in read_whole(FILE)} == {json.loads(line)["cell"] for line in LINES}

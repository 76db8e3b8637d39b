"""Stored cells: each field is checked, and lines of schema 1 stay readable."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.model.cell import Cell, Claim, CountedWork, Ratio, Summary
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import to_json
from harness.model.ids import CellId
from harness.model.settings import Settings
from harness.store.cells import CellStore, read_cells, read_whole
from harness.store.keys import Key
from reports.core.frames import read_results


def cell(variant: str = "upstream", **changes) -> Cell:
    cell_id = CellId.parse(f"embedding/{variant}@dlrm-856[tables=10,seed=1]/dgx_h100:16")
    return Cell(id=cell_id, reference="double-deepcopy", **{"status": "ok"} | changes)


def append(path: Path, cells: Iterable[Cell]) -> None:
    CellStore(path).add_cells(cells)


def variants(path: Path) -> list[str]:
    return [cell.variant for cell in read_cells(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def test_cells_are_read_as_they_were_written_and_declare_once(path):
    """What cells share is stored with the first of them."""
    written = [
        cell(
            "a",
            key="a.b.c.d.e",
            reason="stopped — “late”\n",
            wall_s=Summary.of([0.1, 0.3, 0.2]),
            ratio=Ratio(0.5, 0.0, math.inf, 3),
            counters={"proposals": 10**18},
            facts={"tables": 10, "note": "ok"},
            claim=Claim(20, 2.5, "min"),
            work=CountedWork(12),
            settings=Settings(),
            counter_meanings={"proposals": "plans proposed"},
        ),
        cell("b", settings=Settings(), counter_meanings={"proposals": "plans proposed"}),
    ]
    append(path, written)
    assert list(read_cells(path)) == written
    assert path.read_text().count("plans proposed") == 1


def test_numbers_and_texts_that_json_lacks_are_stored_all_the_same(path):
    """Values without a form in JSON become null or escapes, and objects are refused."""
    deep = {"deep": [{"nan": math.nan}, (-math.inf, np.float64(1))], "count": np.int64(3)}
    append(path, [cell(facts=deep, reason="no such file: \udcff\u2028\n")])
    (found,) = read_cells(path)
    assert found.facts == {"deep": [{}, [None, 1.0]], "count": 3}
    assert found.reason == "no such file: \\udcff\\u2028\n"
    assert "NaN" not in path.read_text()
    with pytest.raises(TypeError):
        append(path, [cell("b"), cell("c", facts={"mine": object()})])
    assert variants(path) == ["upstream"]


def test_a_run_is_judged_only_if_it_is_whole_and_says_one_thing(path):
    """Empty, torn and contradicting files are refused."""
    append(path, [cell("a"), cell("b")])
    assert [name.variant for name in read_whole(path)] == ["a", "b"]
    append(path, [cell("a", reason="other")])
    with pytest.raises(ShardbenchError, match="twice, with different contents"):
        read_whole(path)
    whole = path.read_bytes()
    for content, said in ((b"\n", "holds no cell"), (whole[:-9], "only whole results")):
        path.write_bytes(content)
        with pytest.raises(ShardbenchError, match=said):
            read_whole(path)


FILE = Path(__file__).with_name("data") / "schema_1.jsonl"
LINES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
GONE = "goals"
"""A field of these lines that is ignored."""


def holds(record: Any, line: Any) -> bool:
    """Return whether a record contains all values of a line; it may have newer fields as well."""
    if isinstance(line, dict):
        return all(name in record and holds(record[name], line[name]) for name in line)
    return bool(record == line)


def test_lines_of_schema_1_are_read_and_can_be_written_anew(path):
    """Results of earlier versions stay readable."""
    cells = list(read_cells(FILE))
    for known, line in zip(cells, LINES, strict=True):
        line.pop(GONE, None)
        assert holds(json.loads(to_json(known.record())), line)
        assert Key.parse(known.key).machine == known.environment.machine
    assert len(read_results(FILE).cells) == len(read_whole(FILE)) == len(LINES)
    append(path, cells)
    assert list(read_cells(path)) == cells


RANKS = {"columns": ["ms"], "rows": [[1, 2]], "capacities": [None], "bar": "ms"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ratio": "x"}, "'ratio': Expected `object | null`, got `str`"),
        ({"ratio": {"value": 2, "high": 1}}, "'ratio': a value must lie within its interval"),
        ({"wall_s": {"median": 1e-200}}, "'wall_s' must be 0 or from 1e-100 to 1e+100 in size"),
        ({"status": "fine"}, "'status': Invalid enum value 'fine'; known are: ok, over budget"),
        ({"status": "x" * 10**6}, "'status': Invalid enum value 'xxx"),
        ({"ranks": RANKS}, "'ranks"),
        ({"schema": 2}, "'schema' must be 1"),
    ],
)
def test_every_field_has_a_type(path, changes, why):
    """A wrong field damages its line alone, and is named."""
    append(path, [cell("a")])
    with path.open("a") as file:
        file.write(json.dumps(cell("b").record() | changes) + "\n")
    store = CellStore(path)
    assert [entry.value.variant for entry in store.entries] == ["a"]
    (damage,) = store.damaged
    assert damage.why.startswith(f"is no cell: {why}")
    assert len(str(damage)) < 400 + len(str(path))
    with pytest.raises(UsageError, match="line 3: it is no cell"):
        variants(path)

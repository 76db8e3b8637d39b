"""Cells to judge are read from a file, either all or none."""

import json
from pathlib import Path

import pytest
from judged import QUICK, SLOW
from made_up_cells import line, write

from harness.model.errors import ShardbenchError
from harness.store.cells import read_whole


class TestReadingCells:
    def test_cells_are_found_by_id(self, tmp_path: Path):
        path = write(tmp_path / "r.jsonl", line("slow"), line())
        assert list(read_whole(path)) == [SLOW, QUICK]

    @pytest.mark.parametrize("content", ["", "\n\n"])
    def test_an_empty_file_is_an_error(self, tmp_path: Path, content: str):
        path = tmp_path / "r.jsonl"
        path.write_text(content)
        with pytest.raises(ShardbenchError, match="holds no cell"):
            read_whole(path)

    @pytest.mark.parametrize(
        "rest",
        [
            f"not json\n{json.dumps(line('slow'))}\n",
            f"{json.dumps(line(counters={'copies': 1.5}))}\n{json.dumps(line('slow'))}\n",
            json.dumps(line("slow"))[:-9],  # torn
        ],
    )
    def test_a_damaged_line_is_an_error(self, tmp_path: Path, rest: str):
        path = tmp_path / "r.jsonl"
        path.write_text(f"{json.dumps(line())}\n{rest}")
        with pytest.raises(ShardbenchError, match=r"line 2: .*only whole results can be judged"):
            read_whole(path)

    def test_a_cell_that_is_there_twice_must_be_the_same(self, tmp_path: Path):
        path = write(tmp_path / "r.jsonl", line(), line())
        assert len(read_whole(path)) == 1
        path = write(tmp_path / "r.jsonl", line(), line(fingerprint="decaf"))
        with pytest.raises(ShardbenchError, match="twice, with different contents"):
            read_whole(path)

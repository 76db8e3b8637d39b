"""Fixtures that run `shardbench gate` in an empty folder, and a file of expectations."""

from functools import partial
from pathlib import Path

import pytest
from made_up_cells import line, write


@pytest.fixture
def gate(shardbench):
    return partial(shardbench, "gate")


@pytest.fixture
def expected(gate, tmp_path: Path) -> Path:
    """A file of expectations; the unchanged cells of `made_up_cells.results` meet them."""
    write(tmp_path / "first.jsonl", line("slow"), line())
    assert gate("--init", "e.toml", "--judge", "first.jsonl")[0] == 0
    return tmp_path / "e.toml"

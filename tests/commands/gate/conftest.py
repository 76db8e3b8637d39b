"""Fixtures that run `shardbench gate` in an empty folder, and a file of expectations."""

from functools import partial
from pathlib import Path

import pytest
from gated import Run
from made_up_cells import line, write


@pytest.fixture
def gate(shardbench: Run) -> Run:
    return partial(shardbench, "gate")


@pytest.fixture
def expected(gate: Run, tmp_path: Path) -> Path:
    """A file of expectations; the unchanged cells of `gated.results` meet them."""
    write(tmp_path / "first.jsonl", line("slow"), line())
    assert gate("--init", "e.toml", "--judge", "first.jsonl")[0] == 0
    return tmp_path / "e.toml"

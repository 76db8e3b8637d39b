"""`shardbench gate` in an empty folder, and expectations that are met there."""

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
    """The expectations that `slow` and `quick` meet, which `results` sets beside them."""
    write(tmp_path / "first.jsonl", line("slow"), line())
    assert gate("--propose", "e.toml", "--judge", "first.jsonl")[0] == 0
    return tmp_path / "e.toml"

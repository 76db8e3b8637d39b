"""`shardbench gate` in an empty folder, and expectations that are met there."""

from pathlib import Path

import pytest
from gated import Run
from made_up_cells import line, write

from shardbench.cli import main


@pytest.fixture
def gate(capsys, monkeypatch, tmp_path) -> Run:
    """Run `shardbench gate` in an empty folder; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_info:
            main(["gate", *arguments])
        out, err = capsys.readouterr()
        return int(exit_info.value.code or 0), out, err

    return run


@pytest.fixture
def expected(gate: Run, tmp_path: Path) -> Path:
    """The expectations that `slow` and `quick` meet, which `results` sets beside them."""
    write(tmp_path / "first.jsonl", line("slow"), line())
    assert gate("--propose", "e.toml", "--judge", "first.jsonl")[0] == 0
    return tmp_path / "e.toml"

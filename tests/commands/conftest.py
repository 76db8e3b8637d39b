"""`shardbench` run in an empty folder, for a terminal of 80 columns."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shardbench.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shardbench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Run a command; returns exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run

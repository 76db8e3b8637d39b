"""Fixtures that run `shardbench` in an empty folder, for a terminal of 80 columns."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.suites.sweep import sweep
from shardbench.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shardbench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Return a function that runs a command and returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def use_families(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Registry]], None]:
    """Return a function that makes commands use a registry of toys."""

    def use(registry: Callable[[], Registry]) -> None:
        measured = partial(Comparison, registry=registry)
        monkeypatch.setattr("shardbench.options.load_registry", lambda failed: registry())
        monkeypatch.setattr("shardbench.commands.compare.Comparison", measured)
        monkeypatch.setattr("shardbench.results_file.sweep", partial(sweep, registry=registry))

    return use

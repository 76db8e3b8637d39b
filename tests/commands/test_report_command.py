"""`shardbench report`, with two files and with flame graphs of real variants."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from shardbench.cli import program

SMALL = ["reshard", "-w", "micro[ops=50,inserts=5]", "-t", "dgx_a100_80gb", "-n", "4"]
SOME = ["--variants", "sync-once,delta-sync", "--seconds", "0.05"]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("measured") / "results.jsonl"
    made = CliRunner().invoke(program, ["compare", *SMALL, *SOME, "--results", str(path)])
    assert made.exit_code == 0, made.output
    return path


@pytest.mark.long
def test_flame_graphs_of_each_step_are_made_and_linked(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(program, ["report", str(results), "--flames"])
    assert made.exit_code == 0, made.output
    text = (tmp_path / "report" / "index.html").read_text()
    pages = sorted((tmp_path / "report" / "flames").iterdir())
    assert len(pages) == 4, "of today's release and ours, and of each step"
    for page in pages:
        assert f'href="flames/{page.name}"' in text
        assert "shardbench profile" in page.read_text()
    assert len(list((tmp_path / "profiles").iterdir())) == 4


def test_two_files_make_a_comparison(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(program, ["report", str(results), str(results)])
    assert made.exit_code == 0, made.output
    text = (tmp_path / "comparison" / "index.html").read_text()
    assert "As expected: all" in text
    assert "CPU time in A" in text

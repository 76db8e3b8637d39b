"""`shardbench record`: what it lists, measures, and refuses."""

import re
from pathlib import Path

import pytest
import torch

from harness.store.cells import read_cells

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
SUITE = """
[[study]]
family = "reshard"
workloads = ["micro[ops=20,inserts=2]", "micro[ops=20,inserts=3]"]
topologies = ["dgx_a100_80gb:4"]
variants = ["sync-each", "sync-once"]
once = true
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("record").mkdir()
    Path("record/suite.toml").write_text(SUITE)
    return Path("record")


def test_a_record_is_measured_once_and_says_how_long_parts_took(shardbench, folder):
    """Measured parts are listed with their last times."""
    assert shardbench("record")[0] == 0
    assert len(list(read_cells(folder / "cells.jsonl"))) == 4
    code, out, _ = shardbench("record", "--dry-run", "--stale")
    assert (code, out.count("measured ")) == (0, 2)
    assert len(re.findall(r", [\d.]+ m?s last time$", out, re.MULTILINE)) == 2


def test_commits_need_a_clone_and_the_other_parts_are_measured(shardbench, folder):
    """The exit code says that a part is missing."""
    (folder / "suite.toml").write_text(
        SUITE + '[[commits]]\nlibrary = "torchrec"\n'
        'problem = "dlrm-856[tables=2,seed=1]/dgx_h100:2"\ncommits.head = "HEAD"\n'
    )
    code, _, said = shardbench("record")
    assert code == 1
    assert "torchrec=PATH" in said
    assert len(list(read_cells(folder / "cells.jsonl"))) == 4


def test_a_suite_for_a_device_tells_the_outcome_of_each_part(shardbench, folder):
    """A part that refused is measured by the next run."""
    (folder / "suite.toml").write_text(
        f'{SUITE}[[table]]\nscript = "refuses.py"\nfamily = "reshard"\norder = -1\n'
        'arguments = ["{device}"]\n'
    )
    Path("refuses.py").write_text("import sys; print('No kernel.', file=sys.stderr); sys.exit(2)")
    code, _, said = shardbench("record", "--device", "cpu")
    assert code == 1
    assert "not measured: No kernel." in said
    (machine,) = folder.glob("cpu-*")
    assert str(machine) in said
    Path("refuses.py").write_text("print('| found |')")
    code, _, said = shardbench("record", "--device", "cpu")
    assert code == 0
    assert "1 part measured" in said
    assert "2 were measured already" in said


ON_DEVICE = SUITE + 'purpose = "on {device}"'


@pytest.mark.parametrize(
    ("suite", "arguments", "named"),
    [
        (SUITE, ["nowhere"], "suite.toml"),
        (SUITE, ["--repository", "torchrec"], "LIBRARY=PATH"),
        (SUITE, ["--only", "nothing-like-this"], "nothing-like-this"),
        (SUITE, ["--device", "cpu"], "takes no --device"),
        (ON_DEVICE, [], "add --device"),
        (ON_DEVICE, ["--device", "tpu"], "'tpu'"),
        pytest.param(ON_DEVICE, ["--device", "cuda"], "GPU", marks=NO_GPU),
    ],
)
def test_what_cannot_be_measured_is_refused_first(shardbench, folder, suite, arguments, named):
    """No file is written."""
    (folder / "suite.toml").write_text(suite)
    code, out, said = shardbench("record", *arguments)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert named in said
    assert list(folder.iterdir()) == [folder / "suite.toml"]

"""The capture example and the commands on its page, run as a reader would run them."""

import re

import pytest
from documented import ROOT, run_python

pytestmark = pytest.mark.long

EXAMPLE = ROOT / "docs" / "examples" / "capture_embedding.py"


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A folder with a captured problem with hashed names, and the example's output."""
    folder = tmp_path_factory.mktemp("captured")
    return folder, run_python(str(EXAMPLE), "problem.json.gz", "--hash-names", folder=folder)


def test_the_live_planners_decision_is_found_again(captured):
    folder, printed = captured
    assert {line.split()[0] for line in printed.splitlines()} == {"user", "item", "shop"}
    compared = run_python(
        "-m", "shardbench", "compare", "embedding", "-w", "problem.json.gz",
        "--variants", "as-captured,default", "--against", "default", "--seconds", "0.1",
        folder=folder,
    )  # fmt: skip
    shown = " ".join(compared.split())
    assert re.search(r"problem\.json\.gz#[0-9a-f]{8}/captured:16", shown)
    decision = re.search(r"live plan: (\w{16})", shown)[1]
    assert re.search(rf"{decision} default, as-captured", shown)


def test_the_captured_problem_is_planned(captured):
    folder, _ = captured
    shown = run_python(
        "-m", "shardbench", "plan", "-w", "problem.json.gz", "-o", "plan.json", folder=folder
    )
    assert "captured:16" in shown
    (name, *_) = re.findall(r'"name": "(.*)"', (folder / "plan.json").read_text())
    assert re.fullmatch(r"\d_[0-9a-f]{12}", name)

"""The scripts of docs/examples, run as a reader would run them."""

import re

import pytest
from documented import ROOT, run_python

from harness.contract.registry import load_registry
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY
from shardbench.problems import find_problem

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "docs" / "examples"


def test_two_ranks_train_the_same_with_and_without_acceleration(tmp_path):
    """The losses fall, and most decisions are hits."""
    printed = run_python(str(EXAMPLES / "train_accelerated.py"), folder=tmp_path)
    trained, informed, stepped = (printed.splitlines()[first::3] for first in range(3))
    assert stepped == ["OptimizerInfo(local=4, by_torch={})"] * 2
    for line, info in zip(trained, informed, strict=True):
        first, last = map(float, re.findall(r"\d\.\d{4}", line))
        assert last < first
        assert line.endswith("equal: yes")
        counted = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", info)}
        assert counted["hits"] > 4 * counted["misses"] > 0


def test_two_ranks_train_alike_with_every_plan(tmp_path):
    """The losses are equal, and same-plan has TorchRec's plan."""
    printed = run_python(str(EXAMPLES / "train_with_plan.py"), folder=tmp_path)
    parts = re.split(r"^(\S.*): loss (\S+) to (\S+)\n", printed, flags=re.MULTILINE)[1:]
    names, first, last, plans = (parts[at::4] for at in range(4))
    assert names == ["TorchRec's planner", "same-plan", "best-plan"]
    assert len(set(first)) == len(set(last)) == 1
    assert float(last[0]) < float(first[0])
    assert plans[0] == plans[1]
    assert "row_wise" in plans[2]


@pytest.mark.filterwarnings("ignore")  # torchrec's, of topologies
def test_a_captured_planners_decision_is_made_again_and_planned(tmp_path):
    """Names are hashed; the default variant decides as the live planner did."""
    example = str(EXAMPLES / "capture_embedding.py")
    printed = run_python(example, "problem.json.gz", "--hash-names", folder=tmp_path)
    assert {line.split()[0] for line in printed.splitlines()} == {"user", "item", "shop"}
    path = str(tmp_path / "problem.json.gz")
    request = find_problem(load_registry(), "embedding", path)
    problem = request.build()
    captured, default = (
        check(request.family, request.family.find(name), problem, SystemClock())
        for name in ("as-captured", "default")
    )
    assert captured.fingerprint == default.fingerprint == captured.facts["live plan"]
    plan = ("plan", "-w", "problem.json.gz", "-o", "plan.json")
    assert "captured:16" in run_python("-m", "shardbench", *plan, folder=tmp_path)
    assert re.search(r'"name": "\d_[0-9a-f]{12}"', (tmp_path / "plan.json").read_text())


def test_an_own_step_is_a_workload():
    """Every variant that must decide as torch does so on the example's training step."""
    problem = ProblemId.parse(f"{EXAMPLES / 'my_step.py'}:step/dgx_h100:8")
    built = FAMILY.work.build(problem.workload, find_topology(problem.topology, problem.gpus))
    variants = map(FAMILY.find, ("upstream", "accelerated"))
    upstream, accelerated = (
        check(FAMILY, variant, built, SystemClock()).fingerprint for variant in variants
    )
    assert accelerated == upstream

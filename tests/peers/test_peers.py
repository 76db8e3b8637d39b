"""`make peers`, on made-up checkouts with few and quick tests."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OF_PYTORCH = """
import os, sys, time
from multiprocessing import get_context

import pytest

OURS = any(name.startswith("planners.") for name in sys.modules)


def dispatch():
    if not OURS:
        return  # importing torch takes seconds

    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (4,))
    distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)]).exp()
    dist.destroy_process_group()


def test_passes():
    dispatch()


def test_fails():
    assert False


def test_regresses():
    if OURS:
        raise ValueError("broken by ours")


def test_is_repaired():
    assert OURS


@pytest.mark.xfail
def test_is_expected_to_fail():
    assert False


@pytest.mark.skip
def test_is_skipped():
    pass


def test_ends_its_process():
    os._exit(0)


def test_hangs():
    time.sleep(1000)


def test_after_a_hang():
    pass


def test_dispatches_in_a_child():
    child = get_context("spawn").Process(target=dispatch)
    child.start()
    child.join()
    assert child.exitcode == 0
"""

OF_TORCHREC = """
import inspect

import torch
from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import PlannerError


def test_plans():
    planner = EmbeddingShardingPlanner(topology=Topology(2, "cuda"), debug=False)
    try:
        planner.plan(nn.Linear(2, 2), [])
    except PlannerError:
        pass


def test_same_plan():
    mode = inspect.signature(EmbeddingShardingPlanner).parameters.get("mode")
    assert mode is None or mode.default == "same-plan"
"""


def peers(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.peers", "--logs", str(folder / "logs"), *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def pytorch(tmp_path: Path) -> Path:
    """A checkout with a test of each kind, and a file that cannot be imported."""
    tests = tmp_path / "pytorch" / "test" / "distributed" / "tensor"
    tests.mkdir(parents=True)
    (tests / "test_made_up.py").write_text(OF_PYTORCH, encoding="utf-8")
    (tests / "test_of_another_release.py").write_text("import no_such_module\n", encoding="utf-8")
    return tmp_path / "pytorch"


@pytest.mark.long
def test_a_regression_is_named_whatever_the_other_tests_do(pytorch, tmp_path):
    """A test that hangs or ends its process has failed, and the tests after it run."""
    run = peers(tmp_path, "--pytorch", str(pytorch), "--limit", "12")
    assert run.returncode == 1, run.stderr
    # run, skipped, pass at baseline, pass with ours, regressions, reach ours
    assert "| accelerate() | 9 | 1 | 5 | 5 | 1 | 2 |" in run.stdout
    regression = "PyTorch, accelerate(): test/distributed/tensor/test_made_up.py::test_regresses"
    assert f"{regression}: ValueError: broken by ours" in run.stdout
    assert run.stdout.count("test_made_up.py::") == 1
    assert "test_of_another_release.py cannot be collected: ModuleNotFoundError" in run.stdout
    assert not list(pytorch.rglob("__pycache__"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("chosen", "code", "row", "said"),
    [
        ("test_passes", 0, "| 1 | 0 | 1 | 1 | 0 | 1 |", "No regressions."),
        ("test_fails", 1, "| 1 | 0 | 0 | 0 | 0 | 0 |", "no test passes at baseline"),
        ("test_after", 1, "| 1 | 0 | 1 | 1 | 0 | 0 |", "no test has reached the drop-in"),
    ],
)
def test_what_compares_nothing_is_no_success(pytorch, tmp_path, chosen, code, row, said):
    """A test must pass without the drop-in, and another or the same one must use it."""
    run = peers(tmp_path, "--pytorch", str(pytorch), "--", "-k", chosen)
    assert run.returncode == code, run.stderr
    assert f"| accelerate() {row}" in run.stdout
    assert said in run.stdout


@pytest.mark.long
def test_both_modes_of_the_planner_on_the_installed_torchrec(tmp_path):
    """Each mode takes the place of TorchRec's planner in the checkout's tests."""
    checkout = tmp_path / "torchrec"
    planner, schema = (
        checkout / "torchrec" / p for p in ("distributed/planner", "schema/api_tests")
    )
    for folder in (planner / "tests", planner / "estimator" / "tests", schema):
        folder.mkdir(parents=True)
    (schema / "test_planner_schema.py").touch()
    (planner / "tests" / "test_made_up.py").write_text(OF_TORCHREC, encoding="utf-8")
    run = peers(tmp_path, "--torchrec", str(checkout), "--installed")
    assert "| Planner, same-plan | 2 | 0 | 2 | 2 | 0 | 1 |" in run.stdout, run.stderr
    assert "| Planner, best-plan | 2 | 0 | 2 | 1 | 1 | 1 |" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--torchrec", ""], "Name at least one checkout, as in `make peers TORCHREC=../torchr"),
        (["--pytorch", "."], "is no checkout of PyTorch: it has no test/distributed/tensor."),
        (["--pytorch", "{pytorch}", "--", "--no-such-option"], "pytest ended with code 4; "),
    ],
)
def test_what_cannot_run_is_said_in_a_sentence(pytorch, tmp_path, arguments, said):
    """The log of pytest has the reason of a refusal by pytest."""
    run = peers(tmp_path, *(word.format(pytorch=pytorch) for word in arguments))
    assert run.returncode == 2
    assert said in run.stderr.splitlines()[-1]
    logs = [path.read_text(encoding="utf-8") for path in tmp_path.glob("logs/*")]
    assert all("--no-such-option" in log for log in logs)

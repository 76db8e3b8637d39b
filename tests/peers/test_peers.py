"""`make peers`, on made-up checkouts with few and quick tests."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PREAMBLE = """
import os
import sys
import time
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
"""

OF_ALL_KINDS = """
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


def peers(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.peers", "--logs", str(tmp_path / "logs"), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def pytorch_checkout(folder: Path, source: str) -> Path:
    tests = folder / "pytorch" / "test" / "distributed" / "tensor"
    tests.mkdir(parents=True)
    (tests / "test_made_up.py").write_text(PREAMBLE + source, encoding="utf-8")
    return folder / "pytorch"


@pytest.fixture
def pytorch(tmp_path: Path) -> Path:
    """A checkout with tests of all kinds."""
    return pytorch_checkout(tmp_path, OF_ALL_KINDS)


@pytest.mark.long
def test_regressions_are_named_whatever_the_other_tests_do(pytorch, tmp_path):
    """A test that ends its process has failed, and a file that cannot be collected is named."""
    uncollectable = pytorch / "test" / "distributed" / "tensor" / "test_of_another_release.py"
    uncollectable.write_text("import no_such_module\n", encoding="utf-8")
    run = peers(tmp_path, "--pytorch", str(pytorch), "--", "-k", "not test_hangs")
    assert run.returncode == 1, run.stderr
    # run, skipped, pass at baseline, pass with ours, regressions, reach ours
    assert "| accelerate() | 8 | 1 | 5 | 5 | 1 | 2 |" in run.stdout
    regression = "PyTorch, accelerate(): test/distributed/tensor/test_made_up.py::test_regresses"
    assert f"{regression}: ValueError: broken by ours" in run.stdout
    assert run.stdout.count("test_made_up.py::") == 1
    assert "test_of_another_release.py cannot be collected: ModuleNotFoundError" in run.stdout
    assert not list(pytorch.rglob("__pycache__"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("chosen", "code", "row", "said"),
    [
        (
            "test_hangs or test_after_a_hang",
            *(1, "| 2 | 0 | 1 | 1 | 0 | 0 |", "no test has reached the drop-in, so that nothing"),
        ),
        ("test_fails", 1, "| 1 | 0 | 0 | 0 | 0 | 0 |", "no test passes at baseline, so that"),
        ("test_passes", 0, "| 1 | 0 | 1 | 1 | 0 | 1 |", "No regressions.\n"),
    ],
)
def test_what_compares_nothing_is_no_success(pytorch, tmp_path, chosen, code, row, said):
    """A test that hangs has failed, and the one after it runs."""
    run = peers(tmp_path, "--pytorch", str(pytorch), "--limit", "3", "--", "-k", chosen)
    assert f"| accelerate() {row}" in run.stdout, run.stderr
    assert said in run.stdout
    assert run.returncode == code


@pytest.mark.long
def test_both_modes_of_the_planner_on_the_installed_torchrec(tmp_path):
    """Each mode takes the place of TorchRec's planner in the checkout's tests."""
    planner = tmp_path / "torchrec" / "torchrec" / "distributed" / "planner"
    schema = tmp_path / "torchrec" / "torchrec" / "schema" / "api_tests"
    for folder in (planner / "tests", planner / "estimator" / "tests", schema):
        folder.mkdir(parents=True)
    (schema / "test_planner_schema.py").touch()
    (planner / "tests" / "test_made_up.py").write_text(
        """
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
""",
        encoding="utf-8",
    )
    run = peers(tmp_path, "--torchrec", str(tmp_path / "torchrec"), "--installed")
    assert "| Planner, same-plan | 2 | 0 | 2 | 2 | 0 | 1 |" in run.stdout, run.stderr
    assert "| Planner, best-plan | 2 | 0 | 2 | 1 | 1 | 1 |" in run.stdout


def test_without_a_checkout_nothing_runs(tmp_path):
    """One sentence says what to name, or what a folder lacks."""
    lacks = f"{tmp_path} is no checkout of PyTorch: it has no test/distributed/tensor.\n"
    for folder, said in (
        ("", "Name at least one checkout, as in `make peers TORCHREC=../torchrec`.\n"),
        (str(tmp_path), lacks),
    ):
        run = peers(tmp_path, "--torchrec", "", "--pytorch", folder)
        assert (run.returncode, run.stderr) == (2, said)


@pytest.mark.long
def test_arguments_that_pytest_refuses_are_in_its_log(tmp_path):
    """The sentence names the log."""
    checkout = pytorch_checkout(tmp_path, "")
    run = peers(tmp_path, "--pytorch", str(checkout), "--", "--no-such-option")
    assert run.returncode == 2
    log = tmp_path / "logs" / "PyTorch-baseline.txt"
    assert f"pytest ended with code 4; {log} says why." in run.stderr
    assert "--no-such-option" in log.read_text(encoding="utf-8")

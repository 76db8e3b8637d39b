"""`from shardbench import ...` gives the real objects, loaded on first use, with their types."""

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from environments import ROOT, MadeEnvironment

import shardbench


def test_importing_it_imports_nothing_else():
    """A job that imports shardbench pays for no library."""
    script = "import sys; import shardbench; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    others = {"torch", "torchrec", "fbgemm_gpu", "pandas", "numpy", "numba", "rich"}
    assert roots & (others | {"harness", "planners", "reports"}) == set()


@pytest.mark.parametrize(
    "name", sorted({*shardbench._HOMES} - {"accelerate_autoparallel", "accelerate_colossalai"})
)
def test_a_name_is_the_object_of_its_module(name):
    """Names print, pickle and compare as the objects of their modules."""
    module, _, attribute = shardbench._HOMES[name].partition(":")
    value = getattr(shardbench, name)
    assert value is getattr(import_module(module), attribute)
    assert pickle.loads(pickle.dumps(value)) is value


def test_types_say_the_same_as_what_runs():
    """Type checkers see every name from its home."""
    tree = ast.parse(Path(shardbench.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == shardbench._HOMES
    (exported,) = [
        ast.literal_eval(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert exported == sorted(typed)


def test_a_star_import_gives_what_is_installed(monkeypatch):
    """A library that is missing takes away its own names alone."""
    monkeypatch.setitem(shardbench._HOMES, "of_a_missing_library", "no_such_library:name")
    names: dict[str, object] = {}
    exec("from shardbench import *", names)
    assert names["Planner"] is shardbench.Planner
    assert names["accelerate"] is shardbench.accelerate
    assert "of_a_missing_library" not in names


@pytest.mark.long
@pytest.mark.parametrize(
    ("missing", "name", "install"),
    [
        ("torchrec", "Planner", "torchrec"),
        ("fbgemm_gpu", "plan_constraints", "fbgemm-gpu, or fbgemm-gpu-cpu where there is no CUDA"),
        ("colossalai", "accelerate_colossalai", "colossalai"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(tmp_path, missing, name, install):
    """The sentence has the command that installs it."""
    made = MadeEnvironment(tmp_path, without=(missing, f"{missing}_cpu"))
    done = made.run(made.python, "-c", f"from shardbench import {name}", path=ROOT)
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: {name} needs {missing}, which is not installed: "
        f"pip install {install}"
    )


WITH_TORCH_ALONE = """
import torch, torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from shardbench import accelerate

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
mesh = init_device_mesh("cpu", (4,))
x = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])
y = distribute_tensor(torch.ones(8, 8), mesh, [Replicate()])
with accelerate() as accelerated:
    for _ in range(3):
        assert (x @ y).placements == (Shard(0),)
print(accelerated.cache_info().hits)
"""


@pytest.mark.long
def test_accelerate_works_where_torch_alone_is(tmp_path):
    """Neither TorchRec nor numba is needed."""
    others = (
        "torchrec", "fbgemm_gpu", "fbgemm_gpu_cpu", "numba", "scipy", "highspy", "pandas",
        "matplotlib", "click", "rich",
    )  # fmt: skip
    made = MadeEnvironment(tmp_path, without=others)
    done = made.run(made.python, "-c", WITH_TORCH_ALONE, path=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


def test_a_package_of_the_same_name_is_named_with_its_file(tmp_path):
    """A package that hides one of ours is an error with its place."""
    other = tmp_path / "harness" / "__init__.py"
    other.parent.mkdir()
    other.touch()
    script = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
        "sys.meta_path[:] = [each for each in sys.meta_path if 'Editable' not in repr(each)]\n"
        "from shardbench import capture"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert "'harness'" in last
    assert str(other) in last

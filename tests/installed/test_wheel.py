"""A wheel of the checkout, installed into an environment that already has torch and torchrec."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ROOT, MadeEnvironment
from packaging.utils import canonicalize_name
from release import check_contents, copy_inputs

from harness.execution.upstream import folder

pytestmark = pytest.mark.long

TABLES = "name,rows,dim,pooling_factor\nuser,100000,64,1\nitem,50000,32,10\nquery,1000,16,5\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the packages and nothing else, built offline from an sdist of the same."""
    folder = tmp_path_factory.mktemp("wheel")
    source = copy_inputs(folder / "source")
    hook = "import sys, setuptools.build_meta as build; build.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", hook, folder], check=True, cwd=source, capture_output=True
    )
    (sdist,) = folder.glob("*.tar.gz")
    subprocess.run(
        [
            sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet",
            "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, sdist,
        ],
        check=True, cwd=folder,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    check_contents(wheel, sdist)
    return wheel


@pytest.fixture(scope="module")
def made(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> MadeEnvironment:
    """An environment with the wheel, in which pip has found all requirements installed."""
    environment = MadeEnvironment(tmp_path_factory.mktemp("made"))
    before = installed(environment)
    assert set(before) > {"torch", "torchrec"}
    environment.pip("install", "--quiet", "--no-index", wheel)
    after = installed(environment)
    assert after.pop("shardbench") == importlib.metadata.version("shardbench")
    assert after == before
    (environment.folder / "my_tables.csv").write_text(TABLES, encoding="utf-8")
    return environment


def installed(environment: MadeEnvironment) -> dict[str, str]:
    """Return the version of each package of an environment, by its normalized name."""
    listed = json.loads(environment.pip("list", "--format", "json"))
    return {canonicalize_name(each["name"]): each["version"] for each in listed}


def shardbench(environment: MadeEnvironment, *words: str) -> str:
    # What is compiled is also plain Python: compiling it takes many seconds.
    done = environment.run(environment.bin / "shardbench", *words, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_lists_compares_and_plans(made):
    """Commands work outside of a checkout."""
    assert "embedding " in shardbench(made, "list")
    compared = shardbench(
        made, "compare", "dimspec", "-w", "all-pairs[rank=2,mesh=2x2]", "-t", "dgx_h100", "-n", "4",
        "--variants", "interned", "--against", "lazy-dict", "--seconds", "0.1", "--json", "-",
    )  # fmt: skip
    rows = {row["variant"]: row for row in json.loads(compared)["rows"]}
    assert rows["interned"]["fingerprint"] == rows["lazy-dict"]["fingerprint"]
    shardbench(
        made, "plan", "--tables", "my_tables.csv", "--topology", "dgx_h100", "--gpus", "8",
        "--variant", "compiled", "-o", "plan.json",
    )  # fmt: skip
    plan = json.loads((made.folder / "plan.json").read_text(encoding="utf-8"))
    assert [table["name"] for table in plan["tables"]] == ["user", "item", "query"]


def test_the_snippets_of_readme_run(made):
    """Drop-ins work in a job, with the wheel alone."""
    script = ROOT / "tests" / "installed" / "readme_job.py"
    done = made.run(made.python, "-I", script, ROOT / "README.md", NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr
    assert "shardbench" in done.stdout


WITH_VLLM = """
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
import torch

# The real policy in empty parent packages; the real ones import libraries of GPUs.
for name in ("vllm", "vllm.distributed", "vllm.distributed.eplb", "vllm.distributed.eplb.policy"):
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = sys.argv[1:] if name.endswith("policy") else []
    package.__spec__ = ModuleSpec(name, None, is_package=True)
sys.modules["vllm"].__version__ = "0.33.0"
from shardbench import accelerate_experts
from vllm.distributed.eplb.policy.default import DefaultEplbPolicy as policy

call = (torch.arange(32.0).reshape(2, 16), 24, 1, 1, 4)
expected = policy.rebalance_experts(*call)
with accelerate_experts() as accelerated:
    assert torch.equal(policy.rebalance_experts(*call), expected)
print(accelerated.info().ours)
"""


def test_without_an_engine_for_experts_it_is_named(made):
    """`accelerate_experts` loads from the wheel, and says in one sentence what is missing."""
    done = made.run(made.python, "-c", "import shardbench; shardbench.accelerate_experts()")
    assert done.returncode == 1
    assert done.stderr.endswith("Name the engine, vllm or sglang: none is installed.\n")


@pytest.mark.upstreams("vllm-eplb-0.33.0")
def test_experts_of_an_engine_are_accelerated(made):
    """The policy of vLLM's release places experts as without the wheel's drop-in."""
    policy = folder("vllm-eplb-0.33.0").absolute()
    done = made.run(made.python, "-c", WITH_VLLM, policy, NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


TYPED = """
from shardbench import JsonPlanLoader, Planner, accelerate, capture, plan_constraints

reveal_type(accelerate().cache_info().hits)
reveal_type(Planner(mode="best-plan"))
reveal_type(plan_constraints)
reveal_type(JsonPlanLoader)
with capture("embedding", "problem.json", hash_names=True):
    pass
accelerate(no_such_argument=1)
"""
# To check the types of torch too would take minutes.
SETTINGS = """
[mypy]
strict = True
[mypy-torch.*,torchrec.*]
follow_imports = skip
ignore_missing_imports = True
"""


def test_a_type_checker_sees_real_types(made):
    """Results of drop-ins have types, and wrong arguments are errors."""
    (made.folder / "job.py").write_text(TYPED, encoding="utf-8")
    (made.folder / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    done = made.run(sys.executable, "-m", "mypy", "--python-executable", made.python, "job.py")
    said = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert said[0] == 'note: Revealed type is "int"', done.stdout
    assert said[1] == 'note: Revealed type is "planners.embedding.drop_in.planner.Planner"'
    assert "def (path: str | pathlib.Path, " in said[2]
    assert "planners.embedding.plan_files.loader.JsonPlanLoader" in said[3]
    assert "Unexpected keyword argument" in said[4]
    assert "Found 1 error in 1 file" in done.stdout

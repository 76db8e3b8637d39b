"""The example package, installed as a reader would install it, and used by every command."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "own_planners"
PROBLEM = ("-w", "uneven[layers=30,seed=1]", "-t", "dgx_a100_80gb", "-n", "4")


class User:
    """A user with a folder of their own, and the example package installed with shardbench."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "own_planners"  # a build leaves files where the source is
        shutil.copytree(EXAMPLE, self.package)
        self.site, self.work = folder / "site", folder / "work"
        self.work.mkdir()

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run Python with these arguments and return its output; it must succeed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True, text=True, check=False, cwd=cwd or self.work, timeout=200,
            env={**os.environ, "PYTHONPATH": str(self.site), "COLUMNS": "80"},
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    def shardbench(self, *arguments: str) -> str:
        """Run a `shardbench` command and return its output."""
        return self.run("-m", "shardbench", *arguments)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    made = User(tmp_path_factory.mktemp("own"))
    made.run(
        "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps",
        "--no-build-isolation", "--no-index", "--target", str(made.site), str(made.package),
    )  # fmt: skip
    return made


def test_every_command_uses_its_family_and_its_variant(user):
    """list, compare, plan, explain, show, sweep, report and gate take them."""
    listed = user.shardbench("list")
    for name in ("pipeline/exact", "embedding/memory-balanced", "gpt3-175b"):
        assert name in listed
    said = user.shardbench("compare", "pipeline", *PROBLEM, "--seconds", "0.1", "--json", "-")
    rows = {row["variant"]: row for row in json.loads(said)["rows"]}
    assert {name: row["status"] for name, row in rows.items()} == dict.fromkeys(rows, "ok")
    assert rows["bisected"]["decision"] == "same"
    assert rows["exact"]["counters"]["sums"] > rows["bisected"]["counters"]["sums"] > 0
    assert set(rows["exact"]["phases"]) >= {"bounding", "cutting"}

    problem = ("-w", "gpt3-175b", "-t", "dgx_a100_80gb", "-n", "16")
    assert "slowest_stage" in user.shardbench("plan", "--family", "pipeline", *problem)
    stages = json.loads((user.work / "plan.json").read_text())["stages"]
    assert [layer for stage in stages for layer in stage["layers"]] == list(range(97))
    told = user.shardbench("explain", "pipeline/equal-counts", *PROBLEM, "--against", "exact")
    assert "The slowest stage of exact costs" in told
    assert "97 layers" in user.shardbench("workload", "show", "gpt3-175b")

    user.shardbench("sweep", "pipeline", "--seconds", "0.1")
    user.shardbench("report", "results/pipeline.jsonl", "--out", "report")
    assert "own-planners" in (user.work / "report" / "index.html").read_text()
    user.shardbench("gate", "--init", "expected.toml", "--judge", "results/pipeline.jsonl")
    expected = tomllib.loads((user.work / "expected.toml").read_text())
    assert len(expected["cell"]) == 9


def test_asv_measures_its_commit(user, monkeypatch):
    """The benchmarks of the package track calls and decisions."""
    monkeypatch.setenv("HOME", str(user.work))  # where asv keeps the machine
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(user.package)]
    for step in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *step], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    user.run("-m", "asv", "machine", "--yes", cwd=user.package)
    measured = ("-m", "asv", "run", "--set-commit-hash", commit.stdout.strip())
    assert "failed" not in user.run(*measured, cwd=user.package)
    (stored,) = user.package.glob(f".asv/results/*/{commit.stdout[:8]}-*.json")
    tracked = json.loads(stored.read_text())["results"]
    assert tracked["pipeline.Pipeline.track_different_decision"][0] == [0, 0]
    exact, bisected = tracked["pipeline.Pipeline.track_python_calls"][0]
    assert exact > bisected > 0
    for made in (".git", ".asv"):
        shutil.rmtree(user.package / made)


def test_its_own_tests_pass(user):
    """The tests that a reader copies pass with the installed package."""
    passed = user.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=user.package)
    assert re.search(r"\d+ passed", passed)

"""The asv environment for commits, run by asv on a small repository with a made-up family."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from toy_library import ToyRepository

from harness.series.repository import Repository

pytestmark = pytest.mark.long

PYTHON = "py{}.{}".format(*sys.version_info)

ROOT = Path(__file__).parents[2]

PROJECT = """
[project]
name = "shardbench"
version = "0.1.0"
[project.entry-points."shardbench.families"]
dice = "dice:FAMILY"
"""

FAMILY = """
from contextlib import nullcontext
from types import SimpleNamespace
from harness.contract import Family, Quality

WORK = SimpleNamespace(
    build=lambda workload, topology: 1,
    facts=lambda problem: {},
    fingerprint=str,
    validate=lambda problem, decision: None,
    quality=lambda problem, decision: {"hash": 1},
    observe=lambda recorder: nullcontext(),
)
QUALITIES = (Quality("hash"),)
FAMILY = Family("dice", "rolls dice", WORK, QUALITIES, benchmarks=("dice/dgx_h100:8",))

def work(steps):
    return lambda problem: sum(range(steps * 100_000)) and "decided"

FAMILY.decider("reference", reference=True)(work(1))
"""
QUICK = '\nFAMILY.decider("quick", same_as="reference")(work({}))\n'
BEFORE = FAMILY + QUICK.format(1)
AFTER = FAMILY + QUICK.replace("quick", "added").format(20) + QUICK.format(5)


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        # A git hook names its own repository.
        env=os.environ
        | {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": str(folder / "nowhere")},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the current harness and asv suite, and two commits of a family."""
    folder = tmp_path_factory.mktemp("project") / "repository"
    repository = ToyRepository(folder)
    for package in ("harness", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    shutil.copy(ROOT / "asv.conf.json", folder)
    ignored_files = ".asv\n__pycache__\n.asv-machine.json\n"
    repository.commit(
        "before", {".gitignore": ignored_files, "pyproject.toml": PROJECT, "dice.py": BEFORE}
    )
    repository.commit("after", {"dice.py": AFTER})
    return folder


@pytest.fixture(scope="module")
def continuous(repository: Path) -> subprocess.CompletedProcess[str]:
    command = "continuous -a rounds=1 -a repeat=8 --show-stderr main~1 main"
    return run(repository, sys.executable, "-m", "asv", *command.split())


def stored(repository: Path, revision: str, name: str) -> dict[str, list[Any]]:
    """Return a benchmark's columns at a commit, each with a value for each variant."""
    commit = Repository(repository).commit(revision).id[:8]
    (file,) = repository.glob(f".asv/results/*/{commit}-worktree-{PYTHON}.json")
    content = json.loads(file.read_text())
    values = content["results"][f"families.dice.{name}"]
    return dict(zip(content["result_columns"], values, strict=False))


def test_a_slow_down_between_two_commits_is_found(continuous):
    """asv names the variant that became slower."""
    assert continuous.returncode == 1, continuous.stdout + continuous.stderr
    changed = [line for line in continuous.stdout.splitlines() if "dice.time_plan(" in line]
    # On a busy machine another cell may seem to have changed as well, but never as much.
    factors = {line.split("'")[1]: float(line.split("|")[4]) for line in changed}
    assert max(factors, key=factors.__getitem__) == "quick"


@pytest.mark.usefixtures("continuous")
def test_a_variant_keeps_its_name_where_another_is_missing(repository):
    """An added variant has no result at the earlier commit."""
    reference, added, quick = stored(repository, "main~1", "time_plan")["result"]
    assert added != added
    assert quick < 3 * reference
    reference, added, quick = stored(repository, "main", "time_plan")["result"]
    assert reference < quick < added


@pytest.mark.usefixtures("continuous")
def test_a_quick_run_leaves_real_results_as_they_are(repository):
    """Results of quick runs are in a folder of their own."""

    def contents() -> dict[Path, bytes]:
        results = repository / ".asv" / "results"
        return {file: file.read_bytes() for file in results.rglob("*.json")}

    before = contents()
    assert before
    ran = run(repository, sys.executable, "-m", "asv", "run", "--quick", "main^!")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert contents() == before
    assert list(repository.glob(f".asv/results-quick/**/*-worktree-{PYTHON}.json"))


@pytest.mark.usefixtures("continuous")
def test_asv_shows_paired_ratios_with_intervals_and_publishes_them(repository):
    """The site has no path of this machine."""
    name = "track_ratio_to_reference"
    ratios = stored(repository, "main", name)
    before, (_, added, quick) = stored(repository, "main~1", name)["result"], ratios["result"]
    assert before[2] < 2 < quick < added
    assert len(ratios["samples"][2]) >= 4
    assert ratios["stats_ci_99_a"][2] <= quick <= ratios["stats_ci_99_b"][2]

    published = run(repository, sys.executable, "-m", "asv", "publish")
    assert published.returncode == 0, published.stdout + published.stderr
    site = repository / ".asv" / "html"
    assert (site / "index.html").is_file()
    assert any(name in str(graph) for graph in site.glob("graphs/**/*.json"))
    assert not any(
        str(repository) in file.read_text(encoding="utf-8") for file in site.rglob("*.json")
    )


@pytest.mark.usefixtures("continuous")
def test_a_family_of_an_installed_package_is_found_at_a_commit(repository, tmp_path):
    """Families of other packages are measured too."""
    venv.create(tmp_path, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(tmp_path)}))
    outer = sysconfig.get_path("purelib")
    (site / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")
    (site / "cards.py").write_text(FAMILY.replace("dice", "cards"))
    info = site / "cards-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cards\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[shardbench.families]\ncards = cards:FAMILY\n")
    command = "-m asv run --quick --dry-run --bench track_hash main^!"
    ran = run(repository, str(tmp_path / "bin" / "python"), *command.split())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for family in ("cards", "dice"):
        assert f"families.{family}.track_hash" in ran.stdout
    assert "Benchmarking worktree-py3" in ran.stdout

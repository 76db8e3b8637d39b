"""asv and `shardbench history` on a repository with a commit for each release of torchrec."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy_repository import ToyRepository

from harness.execution.upstream import folder
from harness.series.installing import install

ROOT = Path(__file__).parents[2]
RELEASES = ("1.4.0", "1.5.1", "1.6.1", "1.8.0")
COUNT = "commits.Counts.track_enumerate_calls"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this project's asv suite, and a repository with a commit for each release."""
    found = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "benchmarks", found / "benchmarks")
    shutil.copy(ROOT / "asv.torchrec.conf.json", found)
    (found / "upstreams").mkdir()
    repository = ToyRepository(found / "upstreams" / "torchrec.git")
    for release in RELEASES:
        place = install("torchrec", release, folder("releases"))
        shutil.rmtree(repository.folder / "torchrec", ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(place.folder / "torchrec", repository.folder / "torchrec", ignore=ignored)
        repository.commit(f"Release {release} (#{release[2]})", {})
    return found


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=os.environ | {"HOME": str(project), "PYTHONPATH": path, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def asv(project: Path, command: str, *arguments: str, code: int = 0) -> str:
    ran = run(project, "asv", command, "--config", "asv.torchrec.conf.json", *arguments)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.long
def test_history_and_asv_name_the_same_commit(project: Path) -> None:
    ran = run(
        project,
        *("shardbench", "history", "torchrec", "--repository", "upstreams/torchrec.git"),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = " ".join(ran.stdout.split())
    assert "4 of 4 commits could be run, or have the same files as one that could (100 %)." in said
    assert "annotations._get_annotated_method" in said
    results = project / "history" / "torchrec"
    with (results / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    calls = [int(float(row["enumerate_calls"])) for row in rows]
    assert max(calls[:2]) < min(calls[2:]) / 4
    stored = (results / "history.jsonl").read_bytes()

    asv(project, "run", "--bench", "Counts", "main~3..main")
    assert (results / "history.jsonl").read_bytes() == stored  # it had run them all
    found = asv(project, "find", "main~3..main", COUNT)
    assert f"Greatest regression found: {rows[2]['commit'][:8]}" in found
    before, after = (rows[each]["commit"][:9] for each in (1, 2))
    compared = {
        line.split("|")[-2].strip(): [each.strip() for each in line.split("|")[1:-2]]
        for line in asv(project, "compare", before, after).splitlines()
        if "Counts.track" in line
    }
    assert compared["commits.Counts.track_annotation_lookups"][:2] == ["+", "0"]
    assert float(compared[COUNT][-1]) > 4
    worse = ("--bench", "track_enumerate_calls", before, after)
    assert "PERFORMANCE DECREASED" in asv(project, "continuous", *worse, code=1)
    asv(project, "publish")
    regressions = json.loads((project / ".asv/torchrec/html/regressions.json").read_text())
    assert any(COUNT in str(each) for each in regressions["regressions"])
    index = json.loads((project / ".asv/torchrec/html/index.json").read_text())
    assert index["show_commit_url"] == "https://github.com/meta-pytorch/torchrec/commit/"
    assert not any(str(project) in each.read_text() for each in project.glob(".asv/**/*.json"))

"""The drop-in planner works on each supported release, each in a separate process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.series.installing import installed_place
from planners.embedding.drop_in.planner import RELEASES

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODELS = 60


def folder(release: str) -> Path:
    """Return the folder of an installed release, or skip the test."""
    installed = installed_place("torchrec")
    if release == installed.release:
        return installed.folder
    kept = ROOT / "upstreams" / "releases" / f"torchrec-{release}"
    if not kept.is_dir():
        pytest.skip(f"shardbench releases torchrec {release} installs it")
    return kept


@pytest.mark.parametrize("release", RELEASES.releases)
def test_it_plans_as_torchrec_and_the_same_best_plan_whatever_the_hash_seed(release):
    path = [str(folder(release)), str(HERE.parent), str(ROOT)]
    best = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(HERE / "planner_on_release.py"), str(MODELS)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        assert said["release"] == release
        assert said["differing"] == []
        assert min(said["plans"], said["errors"]) > MODELS // 10
        best.add(said["best"])
    assert len(best) == 1

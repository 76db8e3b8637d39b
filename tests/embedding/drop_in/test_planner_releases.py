"""The drop-in planner works on each supported release, each in a separate process.

As a script with the release first on the import path, it plans random models with torchrec's
planner and ours. It prints a line of JSON: the release, the numbers of plans and errors, the
differences, and a digest of all best plans.
"""

import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torchrec
from compared import come_to
from random_models import random_model
from torchrec.distributed.planner.partitioners import MemoryBalancedPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer, GreedyProposer

from harness.series.installing import installed_place
from planners.embedding.best_plan import search
from planners.embedding.drop_in.planner import RELEASES, Planner
from planners.embedding.search import warm_up

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODELS = 40
CHOICES = (
    dict,
    lambda: {"proposer": GreedyProposer()},
    lambda: {"proposer": DynamicProgrammingProposer()},
    lambda: {"partitioner": MemoryBalancedPartitioner()},
)


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
    """The best plan passes the check, and is no slower than torchrec's."""
    path = [str(folder(release)), str(HERE.parent), str(ROOT)]
    best = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__],
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


def main() -> None:
    logging.disable(logging.ERROR)
    warm_up.ready(warm_up.BEST_PLAN)  # on small problems torchrec would search itself
    search.WORK_PER_SECOND = 1e5  # little work, and all the time that linear programmes need
    differing, best, outcomes = [], hashlib.sha256(), {"plans": 0, "errors": 0}
    for seed in range(MODELS):
        model, chosen = random_model(Random(seed)), CHOICES[seed % len(CHOICES)]
        theirs = EmbeddingShardingPlanner(**model.components(), **chosen())
        ours = Planner(**model.components(), **chosen(), check=True)
        expected = come_to(theirs, model.module, model.sharders)
        has_plan = not isinstance(expected[0][0], type)  # the type of an error
        if come_to(ours, model.module, model.sharders) != expected or ours._fault:
            differing.append(f"same plan {seed}: {ours._fault}")
        outcomes["plans" if has_plan else "errors"] += 1
        planner = Planner(**model.components(), mode="best-plan", search_seconds=60, check=True)
        planner._clock = lambda: 0.0
        (plan, *_), _, _ = come_to(planner, model.module, model.sharders)
        best.update(str(plan).encode())
        if planner._fault:
            differing.append(f"best plan {seed}: {planner._fault}")
        if has_plan:
            limit = theirs._perf_model.rate(theirs._best_plan) * (1 + 1e-12)
            if planner.max_rank_ms is None or planner.max_rank_ms > limit:
                differing.append(f"best plan {seed} is worse than torchrec's")
    said = {"release": torchrec.__version__, **outcomes, "differing": differing}
    print(json.dumps(said | {"best": best.hexdigest()}))


if __name__ == "__main__":
    main()

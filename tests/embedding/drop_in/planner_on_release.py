"""Plans random models with torchrec's planner and ours; needs a release first on the import path.

Prints a line of JSON: the release, the numbers of plans and errors, the differences, and a digest
of all best plans.
"""

import hashlib
import json
import logging
import sys
from random import Random

import torchrec
from compared import come_to
from random_models import random_model
from torchrec.distributed.planner.partitioners import MemoryBalancedPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer, GreedyProposer

from planners.embedding.best_plan import search
from planners.embedding.drop_in.planner import Planner
from planners.embedding.search import warm_up

CHOICES = (
    dict,
    lambda: {"proposer": GreedyProposer()},
    lambda: {"proposer": DynamicProgrammingProposer()},
    lambda: {"partitioner": MemoryBalancedPartitioner()},
)


def main(models: int) -> None:
    logging.disable(logging.ERROR)
    warm_up.ready(warm_up.BEST_PLAN)  # on small problems torchrec would search itself
    search.WORK_PER_SECOND = 1e5  # little work, and all the time that linear programmes need
    differing, best, outcomes = [], hashlib.sha256(), {"plans": 0, "errors": 0}
    for seed in range(models):
        model, chosen = random_model(Random(seed)), CHOICES[seed % len(CHOICES)]
        theirs = EmbeddingShardingPlanner(**model.components(), **chosen())
        ours = Planner(**model.components(), **chosen(), check=True)
        expected = come_to(theirs, model.module, model.sharders)
        if come_to(ours, model.module, model.sharders) != expected or ours._fault:
            differing.append(f"same plan {seed}: {ours._fault}")
        outcomes["plans" if theirs._best_plan else "errors"] += 1
        planner = Planner(**model.components(), mode="best-plan", search_seconds=60, check=True)
        planner._clock = lambda: 0.0
        (plan, *_), _, _ = come_to(planner, model.module, model.sharders)
        best.update(str(plan).encode())
        if planner._fault:
            differing.append(f"best plan {seed}: {planner._fault}")
        if theirs._best_plan:
            limit = theirs._perf_model.rate(theirs._best_plan) * (1 + 1e-12)
            if planner.max_rank_ms is None or planner.max_rank_ms > limit:
                differing.append(f"best plan {seed} is worse than torchrec's")
    said = {"release": torchrec.__version__, **outcomes, "differing": differing}
    print(json.dumps(said | {"best": best.hexdigest()}))


if __name__ == "__main__":
    main(int(sys.argv[1]))

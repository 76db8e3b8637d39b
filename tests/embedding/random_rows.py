"""Random proposals as rows of option numbers, and their placements."""

from random import Random

import numpy as np
from random_options import Case, random_case
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, SortBy

from planners.embedding.same_plan.proposals import rules_of
from planners.embedding.same_plan.search import Partition
from planners.embedding.search.space import devices_of, search_space


def random_rows(random: Random, case: Case) -> np.ndarray:
    """Return proposals with shuffled tables; many differ in one table from their predecessor."""
    tables = list(case.tables().values())
    random.shuffle(tables)
    rows = [[random.choice(options) for options in tables]]
    for _ in range(random.randint(0, 5)):
        row = [*rows[-1]]
        changed = random.sample(range(len(tables)), random.choice([1, 1, len(tables)]))
        for table in changed:
            row[table] = random.choice(tables[table])
        rows.append(row)
    return np.array(rows)


def placements(seed: int) -> dict:
    random = Random(seed)
    case = random_case(random)
    space = search_space(case.options)
    by_perf = GreedyPerfPartitioner(random.choice(list(SortBy)))
    partition = Partition(space, devices_of(case.topology), rules_of(by_perf), exact=True)
    ratings = partition.place(random_rows(random, case)).tolist()
    return {
        "ratings": [None if rating != rating else rating for rating in ratings],
        "ranks": [] if partition.best is None else partition.best_ranks.tolist(),
    }

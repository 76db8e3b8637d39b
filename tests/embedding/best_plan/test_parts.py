"""Parts allow exactly the placements that torchrec's partitioner can make."""

from itertools import product

import numpy as np
from hypothesis import given
from small_problems import problems, ways

from planners.embedding.best_plan.parts import HOST, RANK, legal, parts_of, places, rounds


def allowed(space, placed_on, parts, option):
    """Return all placements of an option by its parts, each a rank per shard."""
    own = range(parts.first[option], parts.first[option + 1])
    made = []
    for chosen in product(*(places(parts, placed_on, part).tolist() for part in own)):
        ranks = [rank for of_part in chosen for rank in of_part]
        hosts = [of_part[0] // placed_on.host_ranks for of_part in chosen]
        apart = all(
            len({hosts[part - own[0]] for part in run}) == len(run)
            for run in rounds(parts, placed_on, option)
        )
        if parts.together[option]:
            legal = len(set(hosts)) == 1 and hosts[0] < placed_on.hosts
        else:
            legal = not own or parts.unit[own[0]] != HOST or apart
        if own and legal:
            made.append(tuple(ranks))
    return made


@given(problems())
def test_parts_have_the_placements_of_torchrec(problem):
    space, placed_on = problem
    parts = parts_of(space, placed_on)
    for option in range(len(space.options)):
        placements = sorted(ways(*problem, option))
        assert sorted(allowed(space, placed_on, parts, option)) == placements
        shards = int(space.first_shard[option + 1] - space.first_shard[option])
        for ranks in product(range(placed_on.ranks), repeat=shards):
            assert legal(parts, placed_on, option, np.array(ranks)) == (ranks in placements)
        own = slice(parts.first[option], parts.first[option + 1])
        assert (parts.size[own] == 1).all() or not (parts.unit[own] == RANK).any()
        if parts.size[own].size:
            shards = np.arange(space.first_shard[option], space.first_shard[option + 1])
            assert parts.shard[own].tolist() == shards[:: parts.size[own][0]].tolist()

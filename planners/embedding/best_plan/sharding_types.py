"""Lowers the number of sharding types in a plan, without more time.

For each sharding type of a module, TorchRec makes a lookup of its own, and all-to-alls of their own
for its inputs and outputs. The estimates ignore this, so plans with more types are rated equal.
"""

from dataclasses import replace
from itertools import chain, combinations

import numpy as np

from planners.embedding.best_plan.candidates import all_candidates, dominates, sums_of
from planners.embedding.search.outcome import Found
from planners.embedding.search.space import Devices, SearchSpace, load_of, torchrecs_order


def with_fewest_types(space: SearchSpace, devices: Devices, plan: Found) -> Found:
    """Return a plan on the same ranks that rates at most as much, with the fewest sharding types.

    Of sets of types in a module that are as small, it takes the one that is first in TorchRec's
    list; of options with a type in the set, the first.
    """
    sums, types = sums_of(space), torchrecs_order(space.options)[:, 0]
    fitting = all_candidates(space, devices)
    of_table = [own.tolist() for own in np.split(fitting.options, fitting.first[1:-1])]
    # 1. The options that fit in the place of each option of the plan, shard by shard.
    table = space.table[plan.options]
    choices = [
        [other for other in of_table[number] if dominates(space, sums, other, option)]
        for number, option in zip(table.tolist(), plan.options.tolist(), strict=True)
    ]
    # 2. For each module, the smallest set of types with an option for each of its tables.
    options, module = plan.options.copy(), space.module[table]
    for number in range(module.max() + 1):
        own = np.flatnonzero(module == number).tolist()
        possible = [set(types[choices[place]].tolist()) for place in own]
        every = sorted(set().union(*possible))
        sets = chain.from_iterable(combinations(every, count + 1) for count in range(len(every)))
        kept = next(
            chosen for chosen in sets if all(not kinds.isdisjoint(chosen) for kinds in possible)
        )
        for place in own:
            options[place] = next(o for o in choices[place] if types[o] in kept)
    rating = load_of(space, options, plan.ranks, devices.ranks).rating
    return replace(plan, options=options, rating=rating)

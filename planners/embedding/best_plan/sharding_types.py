"""Lowers the number of sharding types in a plan, without more time.

For each sharding type of a module, TorchRec makes a lookup of its own, and all-to-alls of their own
for its inputs and outputs. The estimates ignore this, so plans with more types are rated equal.

1. Options that fit in the place of the plan's options, shard by shard, take it if that leaves fewer
   types, or as many that come earlier in TorchRec's list.
2. The local search looks for a plan with still fewer types.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from planners.embedding.best_plan.candidates import Candidates, dominates, sums_of
from planners.embedding.best_plan.linear import LinearProgramme
from planners.embedding.best_plan.local import LocalSearch
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import Ints, load_of, torchrecs_order

_MOST_SEARCHES = 8  # of all modules


def with_fewest_types(
    found: Candidates, plan: Found, seed: int, work: int, deadline: Deadline
) -> Found:
    """Return a plan that rates at most as much as `plan`, with fewer sharding types if possible.

    `found` has all options that fit, in canonical order. Each try of the local search does `work`
    ratings of a rank at most. Without work, all shards stay on their ranks.
    """
    space = found.space
    types, module = torchrecs_order(space.options)[:, 0], space.module[space.table]
    plan = _in_place(found, plan, types)
    if not work or deadline.passed:
        return plan
    of_module = len(types) * module + types  # a number for each type of each module
    programme, searches = LinearProgramme(found), 0
    for number in range(module.max() + 1):
        own = module == number
        in_use = np.isin(of_module, of_module[plan.options])
        fewer = len(np.unique(types[own & in_use])) - 1
        for kept in _subsets(types[own], fewer):
            allowed = np.where(own, np.isin(types, kept), in_use)[found.options]
            if not np.logical_or.reduceat(allowed, found.first[:-1]).all():
                continue  # a table has no option of these types
            possible = programme.affordable(plan.rating, allowed, deadline)
            if deadline.passed or searches == _MOST_SEARCHES:
                return plan
            if possible is None:
                continue
            searches += 1
            better = _search(found.only(possible), plan, seed, work, deadline)
            if better is not None:
                plan = better
                break
    return plan


def _in_place(found: Candidates, plan: Found, types: Ints) -> Found:
    """Return the plan with options of the fewest types that may take the place of its options."""
    space, options, sums = found.space, plan.options.copy(), sums_of(found.space)
    of_table = [own.tolist() for own in np.split(found.options, found.first[1:-1])]
    choices = [
        [other for other in of_table[table] if dominates(space, sums, other, option)]
        for table, option in zip(space.table[options].tolist(), options.tolist(), strict=True)
    ]
    module = space.module[space.table[options]]
    for number in range(module.max() + 1):
        tables = np.flatnonzero(module == number).tolist()
        possible = [set(types[choices[table]].tolist()) for table in tables]
        every = set().union(*possible)
        kept = next(
            kept
            for kept in _subsets(every, len(every))
            if all(not kinds.isdisjoint(kept) for kinds in possible)
        )
        for table in tables:
            options[table] = next(o for o in choices[table] if types[o] in kept)
    return _with_options(found, plan, options, plan.ranks)


def _with_options(found: Candidates, plan: Found, options: Ints, ranks: Ints) -> Found:
    rating = load_of(found.space, options, ranks, found.devices.ranks).rating
    return replace(plan, options=options, ranks=ranks, rating=rating)


def _subsets(types: Iterable[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of one to `most` types: the smallest first, then by TorchRec's order."""
    for count in range(1, most + 1):
        yield from combinations(sorted(set(types)), count)


def _search(
    found: Candidates, plan: Found, seed: int, work: int, deadline: Deadline
) -> Found | None:
    """Return a plan of these candidates that rates at most as much as `plan`, or None."""
    cost, options = LinearProgramme(found).solve(plan.rating, deadline)
    if (options < 0).any():
        return None
    local = LocalSearch(found, cost, seed)
    local.run(
        local.start_at(options),
        work,
        1.0,
        lambda: local.best_rating <= plan.rating or deadline.passed,
    )
    if local.best is None or local.best_rating > plan.rating:
        return None
    return replace(
        plan, options=local.best.options, ranks=local.best.ranks, rating=local.best_rating
    )

"""Lowers the number of sharding types in a plan, without more time.

For each sharding type of a module, TorchRec makes a lookup of its own, and all-to-alls of their own
for its inputs and outputs. The estimates ignore this, so plans with more types are rated equal.

1. Options that fit in the place of the plan's options, shard by shard, take it if that leaves fewer
   types, or as many that come earlier in TorchRec's list.
2. The local search looks for a plan with still fewer types.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from planners.embedding.best_plan.bounds.programmes import LinearRelaxation
from planners.embedding.best_plan.candidates import Bools, Candidates
from planners.embedding.best_plan.local.rounds import parts_of_run
from planners.embedding.best_plan.local.search import LocalSearch
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Ints, torchrecs_order

_MOST_SEARCHES = 8  # of all modules


def with_fewest_types(
    found: Candidates, plan: Found, seed: int, work: int, deadline: Deadline
) -> Found:
    """Return a plan that rates at most as much as `plan`, with fewer sharding types if possible.

    `found` has all options that fit, in canonical order. Each try of the local search does `work`
    ratings of a rank at most. Without work, all shards stay on their ranks.
    """
    space = found.space
    types = torchrecs_order(space.options)[:, 0]
    plan = _in_place(found, plan, types)
    if not work:
        return plan
    module = space.module[space.table]
    relaxation, searches = LinearRelaxation(found), 0
    for number in range(module.max() + 1):
        own, used = module == number, _used(plan, module, types)
        most = len(np.unique(types[own & used])) - 1
        for kept in _subsets(np.unique(types[own]).tolist(), most):
            fewer = np.where(own, np.isin(types, kept), used)[found.options]
            if not np.logical_or.reduceat(fewer, found.first[:-1]).all():
                continue  # a table has no option of these types
            possible = relaxation.affordable(plan.rating, fewer, deadline)
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


def _used(plan: Found, module: Ints, types: Ints) -> Bools:
    """Return for each option whether the plan has its sharding type in its module, shape (O,)."""
    of_module = module * (types.max() + 1) + types
    return np.isin(of_module, of_module[plan.options])


def _in_place(found: Candidates, plan: Found, types: Ints) -> Found:
    """Return the plan with the fewest types that other options can give it on the same ranks."""
    space, options = found.space, plan.options.copy()
    ranks = np.split(plan.ranks, np.cumsum(np.diff(space.first_shard)[options])[:-1])
    choices = [_standing_in(found, *at) for at in zip(options.tolist(), ranks, strict=True)]
    module = space.module[space.table[options]]
    for number in range(module.max() + 1):
        tables = np.flatnonzero(module == number).tolist()
        of_tables = [set(types[choices[table]].tolist()) for table in tables]
        every = sorted(set().union(*of_tables))
        kept = next(
            kept
            for kept in _subsets(every, len(every))
            if all(not known.isdisjoint(kept) for known in of_tables)
        )
        for table in tables:
            options[table] = next(o for o in choices[table] if types[o] in kept)
    return replace(plan, options=options, rating=found.rate(options, plan.ranks))


def _subsets(types: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of one to `most` types: the smallest first, then by TorchRec's order."""
    for count in range(1, most + 1):
        yield from combinations(types, count)


def _standing_in(found: Candidates, option: int, ranks: Ints) -> list[int]:
    """Return the options that fit in the place of an option, shard by shard, at no more time."""
    space, table = found.space, found.space.table[option]
    others = found.options[found.first[table] : found.first[table + 1]]
    # Sums rule out most options in less time.
    likely = space.first_shard[others + 1] - space.first_shard[others] == len(ranks)
    likely &= space.option_perf[others] <= space.option_perf[option]
    likely &= (space.option_storage[others] <= space.option_storage[option]).all(axis=1)
    return [
        other
        for other in others[likely].tolist()
        if other == option or _fits_in_place(found, other, option, ranks)
    ]


def _fits_in_place(found: Candidates, option: int, other: int, ranks: Ints) -> bool:
    space = found.space
    mine, theirs = space.estimates_of(option), space.estimates_of(other)
    return bool(
        (space.total[mine] <= space.total[theirs]).all()
        and (space.storage[mine] <= space.storage[theirs]).all()
        and found.may_be_on(option, ranks)
    )


def _search(
    found: Candidates, plan: Found, seed: int, work: int, deadline: Deadline
) -> Found | None:
    """Return a plan of these candidates that rates at most as much as `plan`, or None."""
    cost, options = LinearRelaxation(found).solve(plan.rating, deadline)
    if (options < 0).any():
        return None
    local = LocalSearch(found, cost, NotFound(None, None, 0), seed)
    state = local.start_at(options, work // 2)
    for part in parts_of_run(state, work):
        if local.best_rating <= plan.rating or deadline.passed:
            break
        local.improve(state, *part, temperature=1.0)
    if local.best is None:
        return None
    chosen, ranks = local.best.best_plan(local.tables)
    better = replace(plan, options=chosen, ranks=ranks, rating=found.rate(chosen, ranks))
    return better if better.rating <= plan.rating else None

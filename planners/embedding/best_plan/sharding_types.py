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

from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.candidates import Bools, Candidates
from planners.embedding.best_plan.local.rounds import parts_of_run
from planners.embedding.best_plan.local.search import LocalSearch
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Ints, in_torchrecs_order


def with_fewest_types(
    found: Candidates, plan: Found, seed: int, work: int, deadline: Deadline
) -> Found:
    """Return a plan that rates at most as much as `plan`, with fewer sharding types if possible.

    `found` has all options that fit, in canonical order. Each try of the local search does `work`
    ratings of a rank at most. Without work, all shards stay on their ranks.
    """
    space = found.space
    types = np.array([in_torchrecs_order(option)[0] for option in space.options])
    plan = _in_place(found, plan, types)
    if not work:
        return plan
    module = space.module[space.table]
    for number in range(module.max() + 1):
        own, used = module == number, _used(plan, module, types)
        most = len(np.unique(types[own & used])) - 1
        for kept in _subsets(np.unique(types[own]).tolist(), most):
            fewer = np.where(own, np.isin(types, kept), used)
            other = _search(found.only(fewer[found.options]), plan.rating, seed, work, deadline)
            if other is not None:
                plan = replace(plan, options=other[0], ranks=other[1], rating=found.rate(*other))
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
    mine = space.estimates_of(option)
    others = found.options[found.first[table] : found.first[table + 1]]
    same = np.diff(space.first_shard)[others] == len(mine)
    return [
        other
        for other in others[same].tolist()
        for its in [space.estimates_of(other)]
        if (space.total[its] <= space.total[mine]).all()
        and (space.storage[its] <= space.storage[mine]).all()
        and found.may_be_on(other, ranks)
    ]


def _search(
    found: Candidates, most: float, seed: int, work: int, deadline: Deadline
) -> tuple[Ints, Ints] | None:
    """Return a plan that rates at most `most` ms, as options and ranks; None if none is found."""
    relaxed = linear_bound(found, deadline)
    if relaxed.milliseconds > most or (relaxed.options < 0).any() or deadline.passed:
        return None
    local = LocalSearch(found, relaxed.milliseconds, NotFound(None, None, 0), seed)
    state = local.start_at(relaxed.options, work)
    for part in parts_of_run(state, work):
        if local.best_rating <= most or deadline.passed:
            break
        local.improve(state, *part, temperature=1.0)
    if local.best is None:
        return None
    plan = local.best.best_plan(local.tables)
    return plan if found.rate(*plan) <= most else None

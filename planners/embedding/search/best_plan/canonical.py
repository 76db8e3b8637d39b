"""An order of options that does not depend on how they are listed.

Up to torchrec 1.8.0 they are listed in the order of a set, which differs from process to process.
"""

from dataclasses import replace

import numpy as np

from planners.embedding.search.space import Ints, SearchSpace


def canonical_order(space: SearchSpace) -> Ints:
    """Return option numbers table after table, those of a table by name and figures, shape (O,)."""
    figures = [
        space.option_perf.tolist(),
        space.largest_shard.tolist(),
        space.option_storage.tolist(),
        space.placement.tolist(),
    ]

    def key(number: int) -> tuple[object, ...]:
        option = space.options[number]
        named = (int(space.table[number]), option.sharding_type, option.compute_kernel)
        return (*named, *(figure[number] for figure in figures))

    return np.array(sorted(range(len(space.options)), key=key), np.int64)


def reordered(space: SearchSpace, order: Ints) -> SearchSpace:
    """Return a space whose option o is the option order[o]; estimates are numbered anew."""
    counts = np.diff(space.first_shard)[order]
    first = np.concatenate([[0], np.cumsum(counts)])
    shards = np.arange(first[-1]) + np.repeat(space.first_shard[order] - first[:-1], counts)
    used, appearance, number = np.unique(
        space.estimate[shards], return_index=True, return_inverse=True
    )
    by_appearance = np.argsort(appearance)
    numbers = np.empty_like(by_appearance)
    numbers[by_appearance] = np.arange(len(used))
    estimates = used[by_appearance]
    return replace(
        space,
        options=[space.options[number] for number in order.tolist()],
        table=space.table[order],
        first_shard=first,
        estimate=numbers[number],
        storage=space.storage[estimates],
        perf=space.perf[estimates],
        total=space.total[estimates],
        placement=space.placement[order],
        option_storage=space.option_storage[order],
        option_perf=space.option_perf[order],
        largest_shard=space.largest_shard[order],
    )

"""Names the tables that fit nowhere, even with all devices to themselves."""

from collections.abc import Iterator

import numpy as np

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.explain.placement import described
from planners.embedding.remedies.searching import GIB, Flat

_KINDS = ("HBM", "DDR")


def fitting_nowhere(flat: Flat) -> Iterator[str]:
    """Yield a sentence for each table without an option that fits on empty devices."""
    space, capacity = flat.space, np.maximum(flat.devices.storage.max(axis=0), 1)
    part = (space.storage / capacity).max(axis=1)
    largest = np.maximum.reduceat(part[space.estimate], space.first_shard[:-1])
    for table in candidates(space, flat.devices).without_options.tolist():
        options = np.flatnonzero(space.table == table)
        option = int(options[largest[options].argmin()])
        shards = space.estimates_of(option)
        need = space.storage[shards[part[shards].argmax()]]
        needs = " and ".join(
            f"{amount / GIB:.4g} GiB of {kind} (of {whole / GIB:.4g})"
            for kind, amount, whole in zip(_KINDS, need.tolist(), capacity.tolist(), strict=False)
            if amount
        )
        named = space.options[option]
        yield (
            f"Table {named.name} fits nowhere on its own: a shard needs {needs}, with its best "
            f"option, {described(named)}."
        )

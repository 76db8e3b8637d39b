"""Counts of what the Resharder does, by patches of upstream's classes in a run of its own."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from paddle.base.framework import Block
from paddle.distributed.auto_parallel.static.reshard import Resharder

from planners.upstream_run import watched

_COUNTED = (
    (Block, "_insert_op_without_sync", "inserts"),  # which `_insert_op` calls as well
    (Block, "_remove_var", "removals"),
    (Resharder, "parse_op_desc", "parses"),  # also where none of the ops is for this rank
)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count until left: inserted ops, removed variables, reshardings, and whole-block syncs.

    `ops_visited` and `values_visited` are what blocks have when their syncs begin, summed up.
    """
    names = ("syncs", "ops_visited", "values_visited", *(counter for *_, counter in _COUNTED))
    counters = Counter(dict.fromkeys(names, 0))

    def sync(block: Any) -> None:
        counters.update(syncs=1, ops_visited=block.desc.op_size(), values_visited=len(block.vars))

    def add(counter: str, *_: Any, **__: Any) -> None:
        counters[counter] += 1

    calls = [(owner, name, partial(add, counter)) for owner, name, counter in _COUNTED]
    with watched([*calls, (Block, "_sync_with_cpp", sync)]):
        yield counters

"""How often the Resharder does what it does: upstream's classes patched, for a run of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

from paddle.base.framework import Block
from paddle.distributed.auto_parallel.static.reshard import Resharder


@dataclass
class Counted:
    """What has been counted.

    Attributes:
        syncs: Whole-block syncs of the Python copy with the C++ one.
        ops_visited: Ops that the blocks had when those syncs began, summed up.
        values_visited: Variables that they had then, summed up.
        inserts: Ops inserted.
        parses: Reshardings turned into ops, also where none of the ops is for this rank.
        removals: Variables removed.
    """

    syncs: int = 0
    ops_visited: int = 0
    values_visited: int = 0
    inserts: int = 0
    parses: int = 0
    removals: int = 0

    def counters(self) -> dict[str, int]:
        """Return all counters by name."""
        return asdict(self)


@contextmanager
def counting() -> Iterator[Counted]:
    """Count until the block is left."""
    counted = Counted()

    def sync(block: Any) -> None:
        counted.syncs += 1
        counted.ops_visited += block.desc.op_size()
        counted.values_visited += len(block.vars)

    def insert(*_: Any) -> None:
        counted.inserts += 1

    def parse(*_: Any) -> None:
        counted.parses += 1

    def removal(*_: Any) -> None:
        counted.removals += 1

    with ExitStack() as stack:
        for owner, name, count in (
            (Block, "_sync_with_cpp", sync),
            (Block, "_insert_op_without_sync", insert),  # which `_insert_op` calls as well
            (Resharder, "parse_op_desc", parse),
            (Block, "_remove_var", removal),
        ):
            stack.enter_context(patch.object(owner, name, _counted(getattr(owner, name), count)))
        yield counted


def _counted(called: Callable[..., Any], count: Callable[..., None]) -> Callable[..., Any]:
    def replacement(*arguments: Any, **named: Any) -> Any:
        count(*arguments)
        return called(*arguments, **named)

    return replacement

"""Count the objects that outlive a step: a cache that grows with every step fills the memory."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

STEPS = 50
_WARM_UP = 3


class Kept(NamedTuple):
    """Objects known to Python's collector that outlive a step, on average, and their bytes."""

    objects: int
    bytes: int


def kept_per_step(step: Callable[[], object], steps: int = STEPS) -> Kept:
    """Call a step a few times to warm up, then `steps` times; return the objects that each leaves.

    Objects that are made once and stay, less than one a step, count as none.
    """
    with _older_objects_frozen():
        for _ in range(_WARM_UP):
            step()
        before = _living()
        for _ in range(steps):
            step()
        after = _living()
    objects = max(0, after.objects - before.objects) // steps
    return Kept(objects, max(0, after.bytes - before.bytes) // steps if objects else 0)


@contextmanager
def _older_objects_frozen() -> Iterator[None]:
    """Keep the existing objects, nearly all there are, out of collections and lists until left.

    Objects that were frozen before stay frozen.
    """
    are_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not are_frozen:
            gc.unfreeze()


def _living() -> Kept:
    gc.collect()
    found = gc.get_objects()
    older = gc.get_freeze_count()  # a step may free an older object for each one that it makes
    return Kept(older + len(found), sum(sys.getsizeof(living, 0) for living in found))

"""Count the objects that outlive a step, to find caches that grow with every step."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

STEPS = 50
_WARM_UP = 3


class Kept(NamedTuple):
    """A number of objects that Python's garbage collector tracks, and their bytes."""

    objects: int
    bytes: int


def kept_per_step(step: Callable[[], object], steps: int = STEPS) -> Kept:
    """Return the average number and bytes of new objects that remain after a call of `step`.

    It averages over `steps` calls, after a few calls to warm up, and rounds down: fewer than one
    object per call counts as 0.
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
    """Hide the existing objects from the garbage collector inside the context, to be quick.

    If some objects were frozen before, unfreeze none at the end.
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

"""Count what outlives a step: a cache that grows with every one of them fills the memory."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

STEPS = 50
_WARM_UP = 3


class Kept(NamedTuple):
    """What outlives a step, on the average: objects that Python's collector knows, their bytes."""

    objects: int
    bytes: int


def kept_per_step(step: Callable[[], object], steps: int = STEPS) -> Kept:
    """Call a step a few times to warm up and then so often; return what each of these leaves.

    What is made once and stays, less than an object a step, is nothing.
    """
    with _older_objects_left_out():
        for _ in range(_WARM_UP):
            step()
        before = _living()
        for _ in range(steps):
            step()
        after = _living()
    objects = max(0, after.objects - before.objects) // steps
    return Kept(objects, max(0, after.bytes - before.bytes) // steps if objects else 0)


@contextmanager
def _older_objects_left_out() -> Iterator[None]:
    """Keep the objects that are there out of collections and lists, of which they are nearly all.

    Those that were left out before stay left out.
    """
    are_left_out = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not are_left_out:
            gc.unfreeze()


def _living() -> Kept:
    gc.collect()
    found = gc.get_objects()
    older = gc.get_freeze_count()  # of which a step may free one for each that it makes
    return Kept(older + len(found), sum(sys.getsizeof(each, 0) for each in found))

"""Count what outlives a step: a cache that grows with every one of them fills the memory."""

import gc
import sys
from collections.abc import Callable
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
    for _ in range(_WARM_UP):
        step()
    before = _living()
    for _ in range(steps):
        step()
    after = _living()
    objects = max(0, after.objects - before.objects) // steps
    return Kept(objects, max(0, after.bytes - before.bytes) // steps if objects else 0)


def _living() -> Kept:
    gc.collect()
    found = gc.get_objects()
    return Kept(len(found), sum(sys.getsizeof(each, 0) for each in found))

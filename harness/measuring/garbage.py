"""Objects that live long, kept out of the garbage collections between measurements."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def long_lived_objects_left_alone() -> Iterator[None]:
    """Keep the collections between turns short: imported modules and problems stay anyway.

    Objects that a caller has frozen already stay so.
    """
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()

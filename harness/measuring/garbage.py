"""Garbage collection, kept out of what is measured."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_off() -> Iterator[None]:
    """Collect garbage now, and not again until this is left."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def long_lived_objects_left_alone() -> Iterator[None]:
    """Keep the collections between turns short: imported modules and problems stay anyway.

    What a caller has left alone already stays so.
    """
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()

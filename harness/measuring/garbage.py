"""Exclude long-lived objects from the garbage collections between measurements."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def long_lived_objects_left_alone() -> Iterator[None]:
    """Freeze all present objects inside the `with` block, so that collections are short.

    Imported modules and problems would survive every collection in it. If a caller has frozen
    objects already, all stay frozen afterwards.
    """
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()

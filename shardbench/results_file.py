"""A results file that a command appends to: locked, with damaged lines moved out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.store.lock import hold
from harness.store.results import Damage, read_cells, set_damaged_aside
from harness.suites.sweep import set_aside
from shardbench.options import messages, warn

_MOST_NAMED = 5


@contextmanager
def measuring_into(results: Path) -> Iterator[None]:
    """Hold a results file while the block measures into it; damaged lines are moved out of it."""
    with hold(results):
        damaged = set_damaged_aside(results)
        if damaged:
            _tell(damaged)
            messages.print(f"They are moved to {results}.damaged.")
        yield


def keep_earlier(results: Path) -> None:
    """Set earlier results aside, and say where they are kept."""
    if kept := set_aside(results):
        messages.print(f"Earlier results are kept in {kept}.")


def tell_damaged(results: Path) -> None:
    """Warn of the damaged lines of a results file, which are left out."""
    damaged: list[Damage] = []
    list(read_cells(results, damaged.append))
    _tell(damaged)


def _tell(damaged: list[Damage]) -> None:
    for damage in damaged[:_MOST_NAMED]:
        warn(f"Damaged: {damage}")
    if len(damaged) > _MOST_NAMED:
        more = len(damaged) - _MOST_NAMED
        warn(f"Damaged: {more} more lines.")

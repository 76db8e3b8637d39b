"""A results file that a command measures into: held, without damaged lines, and what is in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.store.lock import hold
from harness.store.results import Damage, read_cells, set_damaged_aside
from shardbench.options import messages

_MOST_NAMED = 5


@contextmanager
def measuring_into(results: Path) -> Iterator[None]:
    """Hold a results file while the block measures into it; damaged lines are moved out of it.

    Raises:
        ShardbenchError: another process holds it, or it cannot be written.
    """
    with hold(results):
        damaged = set_damaged_aside(results)
        _tell(damaged)
        if damaged:
            messages.print(f"They are moved to {results}.damaged.", soft_wrap=True)
        yield


def tell_damaged(results: Path) -> None:
    """Say which lines of a results file are damaged, and are left out."""
    damaged: list[Damage] = []
    for _ in read_cells(results, damaged.append):
        pass
    _tell(damaged)


def _tell(damaged: list[Damage]) -> None:
    for damage in damaged[:_MOST_NAMED]:
        messages.print(f"Damaged: {damage}", style="yellow", soft_wrap=True)
    if len(damaged) > _MOST_NAMED:
        more = len(damaged) - _MOST_NAMED
        messages.print(f"Damaged: {more} more lines.", style="yellow", soft_wrap=True)

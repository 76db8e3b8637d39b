"""Collectives of the sizes that decisions send, timed by all processes together."""

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from harness.contract.abilities.validation import Links
from harness.measuring.garbage import long_lived_objects_left_alone
from harness.measuring.timing.clock import Clock
from harness.measuring.timing.turns import timed_turn
from harness.validating.statistics import MeasuredMs

_CALLS = 8  # the least and the most of so many are a 99 % interval of the median


class LinkTime(Struct, frozen=True):
    """A collective: bytes that each process sends, and the median of its milliseconds."""

    collective: str
    bytes_sent: float
    measured: MeasuredMs
    processes: int
    backend: str


@long_lived_objects_left_alone()
def time_links(
    links: Links, sizes: Sequence[Mapping[str, float]], clock: Clock
) -> tuple[LinkTime, ...]:
    """Time each collective of each size; the first process says which ones, all take part."""
    wanted = sorted({(name, size) for each in sizes for name, size in each.items()})
    found = []
    for name, size in links.agree(wanted):
        prepared = links.prepared(name, size)
        timed_turn(prepared, clock)
        took = [1000 * timed_turn(prepared, clock).wall_s for _ in range(_CALLS)]
        measured = MeasuredMs(statistics.median(took), min(took), max(took))
        found.append(LinkTime(name, size, measured, links.processes, links.backend))
    return tuple(found)


def links_ms(found: Sequence[LinkTime], sent: Mapping[str, float]) -> MeasuredMs | None:
    """Return the milliseconds of all collectives of a decision, None where none were timed."""
    held = {(each.collective, each.bytes_sent): each.measured for each in found}
    return sum((held[item] for item in sent.items()), MeasuredMs.none()) if held else None

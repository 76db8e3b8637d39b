"""Collectives of the sizes that decisions send, timed by all processes together."""

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from harness.contract.validation import Links
from harness.measuring.timing.clock import Clock
from harness.measuring.timing.turns import timed_turn

_CALLS = 7


class LinkTime(Struct, frozen=True):
    """A collective: bytes that each process sends, and the median of its milliseconds."""

    collective: str
    bytes_sent: float
    measured_ms: float
    processes: int
    backend: str


def time_links(
    links: Links, sizes: Sequence[Mapping[str, float]], clock: Clock
) -> tuple[LinkTime, ...]:
    """Time each collective of each size; the first process says which ones, all take part."""
    wanted = sorted({(name, size) for each in sizes for name, size in each.items()})
    found = []
    for name, size in links.agree(wanted):
        prepared = links.prepared(name, size)
        timed_turn(prepared, clock)
        took = [timed_turn(prepared, clock).wall_s for _ in range(_CALLS)]
        milliseconds = 1000 * statistics.median(took)
        found.append(LinkTime(name, size, milliseconds, links.processes, links.backend))
    return tuple(found)


def links_ms(found: Sequence[LinkTime], sent: Mapping[str, float]) -> float | None:
    """Return the milliseconds of all collectives of a decision, None where some were not timed."""
    held = {(each.collective, each.bytes_sent): each.measured_ms for each in found}
    times = [held.get(item) for item in sent.items()]
    return None if None in times or not times else sum(filter(None, times))

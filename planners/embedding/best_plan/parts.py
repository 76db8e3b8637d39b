"""Parts: how the shards of each option may be placed on ranks, computed once for an option.

This is the only place that knows torchrec's rules of placement, apart from torchrec's own
partitioner in `same_plan`. A part is a run of shards that are placed together.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planners.embedding.search.space import Devices, Ints, Placement, SearchSpace

RANK, HOST, ALL = 0, 1, 2
"""Units of a part: a shard on any rank, shard i on rank i of a host, or shard i on rank i."""


class Parts(NamedTuple):
    """The parts of all options: P parts of O options; numbers are those of SearchSpace."""

    first: (
        Ints  # option o has the parts first[o] to first[o + 1]; none if it has no place, (O + 1,)
    )
    shard: Ints  # the first shard of each part, an index into SearchSpace.estimate, (P,)
    size: Ints  # its shards: 1, the ranks of a host, or all ranks, (P,)
    unit: Ints  # RANK, HOST or ALL, (P,)
    together: Ints  # 1 if all parts of the option go on ranks of one host, else 0, (O,)


def parts_of(space: SearchSpace, devices: Devices) -> Parts:
    """Return the parts of all options; an option with a wrong number of shards has none."""
    counts, placement = np.diff(space.first_shard), space.placement
    size = np.ones(len(counts), np.int64)
    unit = np.full(len(counts), RANK)
    everywhere = placement == Placement.UNIFORM
    on_hosts = np.isin(placement, (Placement.HOST_ROWS, Placement.HOSTS))
    size[everywhere], unit[everywhere] = devices.ranks, ALL
    size[on_hosts], unit[on_hosts] = devices.host_ranks, HOST
    together = placement == Placement.HOST_COLUMNS
    placeable = (placement != Placement.NOWHERE) & (counts % size == 0)
    placeable &= ~np.isin(placement, (Placement.UNIFORM, Placement.HOST_ROWS)) | (counts == size)
    placeable &= ~(on_hosts | together) | (devices.hosts > 0)
    parts = np.where(placeable, counts // size, 0)
    first = np.concatenate([[0], np.cumsum(parts)])
    option = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(first[-1]) - first[option]
    shard = space.first_shard[option] + number * size[option]
    return Parts(first, shard, size[option], unit[option], together.astype(np.int64))


def rounds(parts: Parts, devices: Devices, option: int) -> Iterator[range]:
    """Yield runs of an option's parts; the parts of a run on hosts are on different hosts."""
    begin, end = int(parts.first[option]), int(parts.first[option + 1])
    most = devices.hosts if end > begin and parts.unit[begin] == HOST else end - begin
    for start in range(begin, end, most or 1):
        yield range(start, min(start + most, end))


def places(parts: Parts, devices: Devices, part: int) -> Ints:
    """Return where a part may go, ignoring memory: the ranks of its shards, shape (N, size)."""
    if parts.unit[part] == ALL:
        return np.arange(devices.ranks)[None]
    if parts.unit[part] == HOST:
        return np.arange(devices.hosts * devices.host_ranks).reshape(devices.hosts, -1)
    return np.arange(devices.ranks)[:, None]


def legal(parts: Parts, devices: Devices, option: int, ranks: Ints) -> bool:
    """Whether the shards of an option may be on these ranks, ignoring memory."""
    begin, end = int(parts.first[option]), int(parts.first[option + 1])
    if begin == end:
        return False
    size = int(parts.size[begin])
    units, positions = np.divmod(ranks, size)
    if parts.together[option]:
        hosts = ranks // devices.host_ranks
        return bool(hosts[0] < devices.hosts and (hosts == hosts[0]).all())
    if parts.unit[begin] == RANK:
        return True
    # Shard i of a part is on rank i of its unit, which is whole; a run shares no unit.
    units = units.reshape(end - begin, size)
    in_order = (positions.reshape(units.shape) == np.arange(size)).all()
    whole = (units == units[:, :1]).all() and units.max() < devices.ranks // size
    runs = (range(run.start - begin, run.stop - begin) for run in rounds(parts, devices, option))
    apart = all(len(np.unique(units[run, 0])) == len(run) for run in runs)
    return bool(in_order and whole and apart)

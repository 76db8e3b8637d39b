"""Computes the bytes of a rank from its shards: the tensors that TorchRec keeps, and a step's peak.

A step is a sequence of allocations and releases. Each sharding type has its own collectives, and so
its own sequence. The sequences were derived from recorded allocations of torchrec 1.9.2, and have
no fitted numbers. Sizes below a few kilobytes are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.types import ShardingType

_INDEX = 8  # bytes of an index, a length or an offset
_ROW_WISE = ShardingType.ROW_WISE.value
_DATA_PARALLEL = ShardingType.DATA_PARALLEL.value
_ROWS_OF_A_HOST = ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value
_COLUMNS = (
    ShardingType.COLUMN_WISE.value,
    ShardingType.TABLE_COLUMN_WISE.value,
    ShardingType.GRID_SHARD.value,
)


_HOST, _WORLD = "reduce-scatter", "all-to-all"


class Live:
    """The bytes that are allocated now, and the most so far."""

    def __init__(self, now: float = 0) -> None:
        self.now = self.peak = now

    def change(self, *sizes: float) -> None:
        """Allocate bytes, or release them if a size is negative, one after the other."""
        for size in sizes:
            self.now += size
            self.peak = max(self.peak, self.now)


@dataclass(slots=True)
class Group:
    """The tensors of one sharding type on a rank, in bytes.

    Attributes:
        own_lengths: of the rank's own samples.
        sent_values, sent_lengths: of the same, divided by ranks.
        values, lengths: the indices and lengths that the rank receives.
        looked_up: the pooled vectors of the rank's shards, for the samples of all ranks.
        outputs: the pooled vectors of all tables of the group, for the rank's own samples.
        gradients: of weights, if an optimizer outside the kernel needs them.
        senders: the number of ranks, or of hosts, that the outputs come from.
    """

    kind: str
    weights: float = 0
    optimizer: float = 0
    gradients: float = 0
    own_lengths: float = 0
    sent_values: float = 0
    sent_lengths: float = 0
    values: float = 0
    lengths: float = 0
    looked_up: float = 0
    outputs: float = 0
    senders: int = 0

    @property
    def inputs(self) -> float:
        """The bytes of the received indices and lengths."""
        return self.values + self.lengths

    @property
    def kept(self) -> float:
        """The bytes that stay allocated from step to step.

        A table-batched kernel keeps the indices and offsets of its last lookup.
        """
        return self.weights + self.optimizer + self.gradients + self.values + self.lengths


def rank_groups(
    plan: Iterable[ShardingOption],
    topology: Topology,
    rank: int,
    state_bytes: Callable[[int, int], float],
) -> list[Group]:
    """Return the groups of a rank; `state_bytes` is of an optimizer, by rows and columns."""
    found: dict[str, Group] = {}
    senders: dict[str, set[int]] = {}
    for option in plan:
        kind = option.sharding_type
        group = found.setdefault(kind, Group(kind))
        _add_table(group, option, topology)
        of_sender = topology.intra_group_size if kind in _ROWS_OF_A_HOST else 1
        for shard in option.shards:
            senders.setdefault(kind, set()).add(int(shard.rank) // of_sender)
            group.senders = len(senders[kind])
            if shard.rank == rank:
                _add_shard(group, option, shard.size, topology, state_bytes)
    return list(found.values())


def _add_table(group: Group, option: ShardingOption, topology: Topology) -> None:
    """Add a table's part of the rank's own samples."""
    shards = _column_shards(option, topology)
    batch, features = option.batch_size, len(option.input_lengths)
    parts = 1
    if group.kind == _ROW_WISE:
        parts = topology.world_size
    elif group.kind in _ROWS_OF_A_HOST:
        parts = topology.intra_group_size
    group.sent_values += _INDEX * sum(option.input_lengths) * batch * shards
    group.own_lengths += _INDEX * features * batch * shards
    group.sent_lengths += _INDEX * features * batch * shards * parts
    item = option.tensor.element_size()
    group.outputs += item * int(option.tensor.shape[1]) * features * batch


def _column_shards(option: ShardingOption, topology: Topology) -> int:
    if option.sharding_type not in _COLUMNS:
        return 1
    return len({tuple(shard.offset)[1] for shard in option.shards})


def _add_shard(
    group: Group,
    option: ShardingOption,
    size: list[int],
    topology: Topology,
    state_bytes: Callable[[int, int], float],
) -> None:
    rows, columns = size
    item, features = option.tensor.element_size(), len(option.input_lengths)
    world = 1 if group.kind == _DATA_PARALLEL else topology.world_size
    samples = option.batch_size * world
    share = rows / int(option.tensor.shape[0])
    group.weights += rows * columns * item
    group.optimizer += state_bytes(rows, columns)
    group.values += _INDEX * sum(option.input_lengths) * samples * share
    group.lengths += _INDEX * features * samples
    group.looked_up += item * columns * features * samples
    if group.kind == _DATA_PARALLEL:
        group.gradients += rows * columns * item


def step_peak(groups: Sequence[Group], ranks_of_host: int, hosts: int) -> float:
    """Return the largest number of bytes allocated at once in a step, with the kept ones."""
    live = Live(sum(group.kept for group in groups))
    _exchange_inputs(groups, live)
    _look_up(groups, live, ranks_of_host, hosts)
    outputs = sum(group.outputs for group in groups)
    if len(groups) > 1:
        live.change(outputs, -outputs)  # the vectors of all groups together
    for group in reversed(groups):
        _return_gradients(group, live, ranks_of_host, hosts)
    for group in reversed(groups):
        _update_tables(group, live, ranks_of_host, hosts)
    return live.peak


def _hops(group: Group, hosts: int) -> tuple[str, ...]:
    """Return the collectives of the pooled vectors: a reduce-scatter, an all-to-all, or both."""
    if group.kind == _DATA_PARALLEL:
        return ()
    if group.kind == _ROW_WISE or (group.kind in _ROWS_OF_A_HOST and hosts == 1):
        return (_HOST,)
    return (_HOST, _WORLD) if group.kind in _ROWS_OF_A_HOST else (_WORLD,)


def _exchange_inputs(groups: Sequence[Group], live: Live) -> None:
    """Send and receive indices and lengths; afterwards the received ones are allocated."""
    start = live.now
    exchanging = [group for group in groups if group.kind != _DATA_PARALLEL]
    if [group.kind for group in groups] != [_ROW_WISE]:  # features are put into another order
        lengths = sum(group.own_lengths for group in groups)
        live.change(lengths, lengths, sum(group.sent_values for group in groups), -lengths)
    for group in exchanging:
        if group.kind == _ROW_WISE or group.kind in _ROWS_OF_A_HOST:  # by the rank of each row
            split, values = group.sent_lengths, group.sent_values
            live.change(split, values, group.own_lengths, split, -split, -group.own_lengths)
            if group.kind != _ROW_WISE:
                live.change(split, split, values, -split, -values, -split)
    for group in exchanging:
        live.change(group.lengths, group.values)
    for group in exchanging:
        live.change(group.lengths, group.lengths, group.values, -group.lengths)
    live.change(start + sum(group.inputs for group in exchanging) - live.now)


def _look_up(groups: Sequence[Group], live: Live, ranks_of_host: int, hosts: int) -> None:
    """Look up and pool rows, and send the vectors; afterwards the own outputs are allocated."""
    previous = 0.0
    for group in groups:
        if group.kind == _DATA_PARALLEL:
            live.change(group.outputs)
            continue
        # The kernel replaces the indices and offsets of its last lookup by new ones.
        live.change(group.lengths, -group.inputs, group.looked_up, -previous)
        sent, previous = group.looked_up, group.looked_up
        hops = _hops(group, hosts)
        if hops == (_HOST, _WORLD):
            sent = group.looked_up / ranks_of_host
            live.change(sent)
        live.change(group.outputs)
        if _WORLD in hops:
            live.change(sent, -sent)
        if hops == (_HOST, _WORLD):
            live.change(-sent)
    live.change(-previous - sum(group.lengths for group in groups if _hops(group, hosts)))
    for group in groups:
        if _WORLD in _hops(group, hosts) or group.kind in _COLUMNS:
            live.change(group.outputs, -group.outputs)  # in the order of ranks, then of tables


def _return_gradients(group: Group, live: Live, ranks_of_host: int, hosts: int) -> None:
    """Send the gradients of outputs back; afterwards those of looked-up vectors are allocated."""
    outputs, back, hops = group.outputs, group.looked_up, _hops(group, hosts)
    if group.kind == _ROW_WISE:
        live.change(back, outputs, -outputs)
    elif _WORLD in hops:
        if _HOST in hops:
            back /= ranks_of_host
        # The gradients are made contiguous, copied for each sender, and copied into one tensor.
        copied = outputs * (group.senders > 1)
        live.change(outputs, copied, outputs, -copied)
        if group.kind in _COLUMNS:
            live.change(back, -2 * outputs)
        else:
            live.change(-outputs, back, -outputs)


def _update_tables(group: Group, live: Live, ranks_of_host: int, hosts: int) -> None:
    """Gather the gradients of looked-up vectors where they are not yet, and use them up."""
    if group.kind == _DATA_PARALLEL:
        live.change(group.weights, -group.weights)
        return
    if group.kind in _ROWS_OF_A_HOST:
        live.change(group.looked_up)
        if hosts > 1:
            live.change(-group.looked_up / ranks_of_host)
        else:
            live.change(group.outputs, -group.outputs)
    live.change(-group.looked_up)

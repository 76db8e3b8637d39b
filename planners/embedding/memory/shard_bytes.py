"""Computes the bytes of a rank from its shards, and the peak of its memory in a step.

The peak comes from replaying the allocations of a step in their order. Each sharding type has its
own collectives, and so its own sequence of allocations and releases. The sequences are those of
torchrec 1.9.2, as recorded. Nothing in them is fitted.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torchrec.optim
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.types import ShardingType

WEIGHTS, OPTIMIZER, CACHED = "weights", "optimizer", "cached rows"
INPUTS, OUTPUTS, GRADIENTS = "inputs", "outputs", "gradients"
PEAK = "peak of a step"
OF_RANK = ""
"""In place of a sharding type, for the bytes of the whole rank."""

Terms = dict[str, dict[str, int]]
"""Bytes by sharding type, and by term."""


class Optimizer(NamedTuple):
    """An optimizer: its class in torch, its name in fbgemm, and the numbers of its state."""

    kind: type[torch.optim.Optimizer]
    fused: EmbOptimType
    per_row: int
    per_weight: int

    def state_bytes(self, rows: int, columns: int) -> int:
        """Return the bytes of the state of a shard, in 32-bit numbers."""
        return 4 * rows * (self.per_row + self.per_weight * columns)


OPTIMIZERS = {
    "sgd": Optimizer(torch.optim.SGD, EmbOptimType.EXACT_SGD, 0, 0),
    "rowwise_adagrad": Optimizer(
        torchrec.optim.RowWiseAdagrad, EmbOptimType.EXACT_ROWWISE_ADAGRAD, 1, 0
    ),
    "adagrad": Optimizer(torch.optim.Adagrad, EmbOptimType.EXACT_ADAGRAD, 0, 1),
    "adam": Optimizer(torch.optim.Adam, EmbOptimType.ADAM, 0, 2),
}

_ROW_WISE = ShardingType.ROW_WISE.value
_DATA_PARALLEL = ShardingType.DATA_PARALLEL.value
_ROWS_OF_A_HOST = ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value
COLUMNS = (
    ShardingType.COLUMN_WISE.value,
    ShardingType.TABLE_COLUMN_WISE.value,
    ShardingType.GRID_SHARD.value,
)
_INDEX = 8  # bytes of an index, a length or an offset


@dataclass(slots=True)
class TypeBytes:
    """The bytes of a rank's tables of one sharding type, which TorchRec handles together.

    Attributes:
        reduces, exchanges: whether pooled vectors are reduced over ranks with rows of one table,
            and whether they are exchanged with ranks, or hosts, that have other tables.
        ranks_of_host: the number of ranks that share a host.
        offsets: the ends of the rank's own samples in its batch.
        own_lengths: lengths of these samples, once for each part of a table's columns.
        sent_values, sent_lengths: indices and lengths of these samples, divided by ranks.
        values, lengths: the indices and lengths that the rank receives.
        looked_up: the pooled vectors of the rank's shards, for the samples of all ranks.
        outputs: the pooled vectors of all tables of the group, for the rank's own samples.
        gradients: of weights, which only replicated tables have.
        senders: the number of ranks, or of hosts, that the outputs come from.
        is_reordered: whether the features of all groups are put into another order first.
        is_permuted: whether the columns of a table arrive apart, and must be put together.
    """

    kind: str
    reduces: bool
    exchanges: bool
    ranks_of_host: int
    weights: float = 0
    optimizer: float = 0
    gradients: float = 0
    offsets: float = 0
    own_lengths: float = 0
    sent_values: float = 0
    sent_lengths: float = 0
    values: float = 0
    lengths: float = 0
    looked_up: float = 0
    outputs: float = 0
    senders: int = 0
    is_reordered: bool = True
    is_permuted: bool = False

    @classmethod
    def of(cls, kind: str, topology: Topology) -> "TypeBytes":
        """Return an empty group of a sharding type."""
        several = topology.world_size > topology.intra_group_size
        reduces = kind == _ROW_WISE or kind in _ROWS_OF_A_HOST
        exchanges = several if kind in _ROWS_OF_A_HOST else kind not in (_ROW_WISE, _DATA_PARALLEL)
        return cls(kind, reduces, exchanges, int(topology.intra_group_size))

    @property
    def inputs(self) -> float:
        """The bytes of the received indices and lengths."""
        return self.values + self.lengths

    @property
    def reduced(self) -> float:
        """The bytes of the vectors of a host's ranks, once they are reduced to one rank's."""
        return self.looked_up / self.ranks_of_host

    @property
    def kept(self) -> float:
        """The bytes that stay allocated from step to step.

        A table-batched kernel keeps the indices and offsets of its last lookup, and the batch keeps
        the offsets that were computed from its lengths.
        """
        return self.weights + self.optimizer + self.gradients + self.inputs + self.offsets

    @property
    def terms(self) -> dict[str, int]:
        """The bytes by term, as they are measured."""
        terms = {
            WEIGHTS: self.weights,
            OPTIMIZER: self.optimizer,
            INPUTS: self.inputs,
            OUTPUTS: self.looked_up,
            GRADIENTS: self.gradients + self.looked_up,
        }
        return {term: round(size) for term, size in terms.items()}

    def add_table(self, option: ShardingOption, topology: Topology, cuts: int) -> None:
        """Add a table's part of the rank's own samples; `cuts` counts the parts of its columns."""
        parts = topology.world_size if self.kind == _ROW_WISE else 1
        parts = topology.intra_group_size if self.kind in _ROWS_OF_A_HOST else parts
        features, batch = len(option.input_lengths), option.batch_size
        self.sent_values += _INDEX * sum(option.input_lengths) * batch * cuts
        self.offsets += _INDEX * features * batch
        self.own_lengths += _INDEX * features * batch * cuts
        self.sent_lengths += _INDEX * features * batch * cuts * parts
        self.outputs += option.tensor[0].nbytes * features * batch

    def add_shard(
        self, option: ShardingOption, size: Sequence[int], topology: Topology, optimizer: str
    ) -> None:
        """Add a shard of the rank, of `size` rows and columns."""
        rows, columns = size
        item, features = option.tensor.element_size(), len(option.input_lengths)
        is_whole = self.kind == _DATA_PARALLEL
        samples = option.batch_size * (1 if is_whole else topology.world_size)
        share = rows / int(option.tensor.shape[0])
        self.weights += rows * columns * item
        self.gradients += rows * columns * item * is_whole
        self.optimizer += OPTIMIZERS[optimizer].state_bytes(rows, columns)
        self.values += _INDEX * sum(option.input_lengths) * samples * share
        self.lengths += _INDEX * features * samples
        self.looked_up += item * columns * features * samples


def rank_groups(
    plan: Sequence[ShardingOption], topology: Topology, rank: int, optimizer: str
) -> list[TypeBytes]:
    """Return the groups of a rank, in the order of TorchRec's sharded module."""
    groups: dict[str, TypeBytes] = {}
    places: set[tuple[int, int, int, int]] = set()  # of features: group, sender, table, column
    for number, option in enumerate(plan):
        kind = option.sharding_type
        group = groups.setdefault(kind, TypeBytes.of(kind, topology))
        starts = {shard.offset[1] for shard in option.shards if shard.offset}
        group.add_table(option, topology, len(starts) if kind in COLUMNS else 1)
        of_sender = group.ranks_of_host if group.reduces else 1
        for shard in option.shards:
            sender = int(shard.rank or 0) // of_sender if group.exchanges else 0
            column = shard.offset[1] if kind in COLUMNS and shard.offset else 0
            places.add((list(groups).index(kind), sender, number, column))
            if shard.rank == rank:
                group.add_shard(option, shard.size, topology, optimizer)
    is_reordered = [place[2] for place in sorted(places)] != [*range(len(plan))]
    for number, group in enumerate(groups.values()):
        group.is_reordered = is_reordered
        own = sorted(place[1:] for place in places if place[0] == number)
        group.senders = len({sender for sender, _, _ in own})
        runs = [table for table, _ in itertools.groupby(table for _, table, _ in own)]
        group.is_permuted = len(runs) > len(set(runs))
    return list(groups.values())


def derived_terms(
    plan: Sequence[ShardingOption], topology: Topology, optimizer: str
) -> list[Terms]:
    """Return the bytes of each rank of a plan, by sharding type and term, and its peak."""
    ranks: list[Terms] = []
    for rank in range(topology.world_size):
        groups = rank_groups(plan, topology, rank, optimizer)
        terms = {group.kind: group.terms for group in groups}
        ranks.append({**terms, OF_RANK: {PEAK: round(step_peak(groups))}})
    return ranks


class _Live:
    """The bytes that are allocated now, and the most so far."""

    def __init__(self, now: float) -> None:
        self.now = self.peak = now

    def change(self, *sizes: float) -> None:
        """Allocate bytes, or release them if a size is negative, one after the other."""
        for size in sizes:
            self.now += size
            self.peak = max(self.peak, self.now)


def step_peak(groups: Sequence[TypeBytes]) -> float:
    """Return the largest number of bytes allocated at once in a step, with the kept ones."""
    live = _Live(sum(group.kept for group in groups))
    _exchange_inputs(groups, live)
    _look_up(groups, live)
    outputs = sum(group.outputs for group in groups)
    if len(groups) > 1:
        live.change(outputs, -outputs)  # the vectors of all groups together
    for group in reversed(groups):
        _return_gradients(group, live)
    for group in reversed(groups):
        _update_tables(group, live)
    return live.peak


def _exchange_inputs(groups: Sequence[TypeBytes], live: _Live) -> None:
    """Send and receive indices and lengths; afterwards the received ones are allocated."""
    start = live.now
    if any(group.is_reordered for group in groups):
        lengths = sum(group.own_lengths for group in groups)
        live.change(lengths, lengths, sum(group.sent_values for group in groups), -lengths)
    for group in groups:
        if group.reduces:  # indices are divided by the rank of their row
            split, values = group.sent_lengths, group.sent_values
            live.change(split, values, group.own_lengths, split, -split, -group.own_lengths)
            if group.kind != _ROW_WISE:
                live.change(split, split, values, -split, -values, -split)
    received = [group for group in groups if group.kind != _DATA_PARALLEL]
    for group in received:
        live.change(group.inputs)
    for group in received:  # put into the order of features
        live.change(group.lengths, group.inputs, -group.lengths)
    live.change(start + sum(group.inputs for group in received) - live.now)


def _look_up(groups: Sequence[TypeBytes], live: _Live) -> None:
    """Look up and pool rows, and send the vectors; afterwards the own outputs are allocated."""
    previous = 0.0
    for group in groups:
        if group.kind == _DATA_PARALLEL:
            live.change(group.outputs)
            continue
        # The kernel replaces the indices and offsets of its last lookup by new ones.
        live.change(group.lengths, -group.inputs, group.looked_up, -previous)
        previous = group.looked_up
        reduced = group.reduced if group.reduces and group.exchanges else 0.0
        live.change(reduced, group.outputs)
        if group.exchanges:
            sent = reduced or group.looked_up
            live.change(sent, -sent)
        live.change(-reduced)
    lengths = sum(group.lengths for group in groups if group.kind != _DATA_PARALLEL)
    live.change(-previous - lengths)
    for group in groups:
        if group.exchanges:  # vectors are put into the order of tables
            live.change(group.outputs, -group.outputs)


def _return_gradients(group: TypeBytes, live: _Live) -> None:
    """Send the gradients of outputs back; afterwards those of looked-up vectors are allocated."""
    outputs = group.outputs
    if group.kind == _ROW_WISE:
        live.change(group.looked_up, outputs, -outputs)
    elif group.exchanges:
        back = group.reduced if group.reduces else group.looked_up
        # The gradients are made contiguous, copied for each sender, and copied into one tensor.
        copied = outputs * (group.senders > 1)
        live.change(outputs, copied, outputs, -copied)
        first = outputs * (not group.is_permuted)
        live.change(-first, back, first - 2 * outputs)


def _update_tables(group: TypeBytes, live: _Live) -> None:
    """Gather the gradients of looked-up vectors where they are not yet, and use them up."""
    if group.kind == _DATA_PARALLEL:
        live.change(group.weights, -group.weights)
        return
    if group.kind in _ROWS_OF_A_HOST:
        live.change(group.looked_up)
        if group.exchanges:
            live.change(-group.reduced)
        else:
            live.change(group.outputs, -group.outputs)
    live.change(-group.looked_up)

"""Computes the bytes of a rank from its shards, with the peak of a step.

Our peak comes from replaying the allocations of a step in their order, which is that of torchrec
1.9.2, as recorded. Each sharding type has its own collectives, and so its own sequence. Nothing is
fitted.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch
import torchrec.optim
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    SharderDataMap,
    ShardingOption,
    Topology,
)
from torchrec.distributed.types import ShardingType

WEIGHTS, OPTIMIZER = "weights", "optimizer"
INPUTS, OUTPUTS, GRADIENTS = "inputs", "outputs", "gradients"
PEAK = "peak of a step"
OF_RANK = ""
"""In place of a group of tables, for the bytes of the whole rank."""

Terms = dict[str, dict[str, int]]
"""Bytes by group of tables, and by term."""


class Optimizer(NamedTuple):
    """An optimizer: its class in torch, its name in fbgemm, and the 32-bit numbers of its state."""

    kind: type[torch.optim.Optimizer]
    fused: EmbOptimType
    per_row: int
    per_weight: int


OPTIMIZERS = {
    "sgd": Optimizer(torch.optim.SGD, EmbOptimType.EXACT_SGD, 0, 0),
    "rowwise_adagrad": Optimizer(
        torchrec.optim.RowWiseAdagrad, EmbOptimType.EXACT_ROWWISE_ADAGRAD, 1, 0
    ),
    "adagrad": Optimizer(torch.optim.Adagrad, EmbOptimType.EXACT_ADAGRAD, 0, 1),
    "adam": Optimizer(torch.optim.Adam, EmbOptimType.ADAM, 0, 2),
}

_FUSED = "fused"  # the only kernel with known allocations
_ROW_WISE = ShardingType.ROW_WISE.value
_ROWS_OF_A_HOST = ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value
_INDEX, _STATE = 8, 4  # bytes of an index, a length or an offset; of a number of a state


def group_of(sharding_type: str) -> str:
    """Name the tables of a sharding type, which TorchRec handles together."""
    return f"{sharding_type}, {_FUSED}"


@dataclass(slots=True)
class _Group:
    """The bytes of a rank's tables of one sharding type; indices and lengths have 8 bytes.

    Attributes:
        reduces, exchanges: whether pooled vectors are reduced over ranks with rows of one table,
            and whether they are exchanged with ranks, or hosts, that have other tables.
        own_offsets: the ends of the rank's own samples in its batch.
        own_values, own_lengths: the indices and lengths of these samples, once for each part of a
            table's columns.
        split_lengths: the same lengths, divided by the ranks that have the rows.
        values, lengths: the indices and lengths that the rank receives.
        looked_up: the pooled vectors of the rank's shards, for the samples of all ranks.
        outputs: the pooled vectors of all tables of the group, for the rank's own samples.
        senders: the number of ranks, or of hosts, that the outputs come from.
        is_permuted: whether the columns of a table arrive apart, and must be put together.
    """

    kind: str
    topology: Topology
    weights: float = 0
    optimizer: float = 0
    own_offsets: float = 0
    own_values: float = 0
    own_lengths: float = 0
    values: float = 0
    lengths: float = 0
    looked_up: float = 0
    outputs: float = 0
    senders: int = 0
    is_permuted: bool = False

    @property
    def reduces(self) -> bool:
        return self.kind in (_ROW_WISE, *_ROWS_OF_A_HOST)

    @property
    def exchanges(self) -> bool:
        if self.kind in _ROWS_OF_A_HOST:
            return bool(self.topology.world_size > self.topology.intra_group_size)
        return bool(self.kind != _ROW_WISE)

    @property
    def ranks_of_sender(self) -> int:
        """The number of ranks whose vectors arrive as one, reduced to their sum."""
        return int(self.topology.intra_group_size) if self.reduces else 1

    @property
    def split_lengths(self) -> float:
        world, of_host = int(self.topology.world_size), int(self.topology.intra_group_size)
        return self.own_lengths * (world if self.kind == _ROW_WISE else of_host)

    @property
    def inputs(self) -> float:
        return self.values + self.lengths

    def add_table(self, option: ShardingOption, parts: int) -> None:
        """Add a table's part of the rank's own samples; `parts` counts the parts of its columns."""
        features, batch = len(option.input_lengths), option.batch_size
        self.own_values += _INDEX * sum(option.input_lengths) * batch * parts
        self.own_offsets += _INDEX * features * batch
        self.own_lengths += _INDEX * features * batch * parts
        self.outputs += option.tensor[0].nbytes * features * batch

    def add_shard(self, option: ShardingOption, size: Sequence[int], optimizer: str) -> None:
        """Add a shard of the rank, of `size` rows and columns."""
        (rows, columns), made = size, OPTIMIZERS[optimizer]
        item, features = option.tensor.element_size(), len(option.input_lengths)
        samples = option.batch_size * self.topology.world_size
        share = rows / int(option.tensor.shape[0])
        self.weights += rows * columns * item
        self.optimizer += _STATE * rows * (made.per_row + made.per_weight * columns)
        self.values += _INDEX * sum(option.input_lengths) * samples * share
        self.lengths += _INDEX * features * samples
        self.looked_up += item * columns * features * samples


def derived_terms(
    plan: Sequence[ShardingOption], topology: Topology, optimizer: str
) -> list[Terms]:
    """Return the bytes of each rank of a plan, by group and term, and its peak."""
    ranks: list[Terms] = []
    for rank in range(topology.world_size):
        groups, is_reordered = _groups(plan, topology, rank, optimizer)
        terms: Terms = {OF_RANK: {PEAK: round(_step_peak(groups, is_reordered))}}
        for group in groups:
            terms[group_of(group.kind)] = {
                WEIGHTS: round(group.weights),
                OPTIMIZER: round(group.optimizer),
                INPUTS: round(group.inputs),
                OUTPUTS: round(group.looked_up),
                GRADIENTS: round(group.looked_up),
            }
        ranks.append(terms)
    return ranks


def _groups(
    plan: Sequence[ShardingOption], topology: Topology, rank: int, optimizer: str
) -> tuple[list[_Group], bool]:
    """Return a rank's groups, and whether features are put into another order to be sent.

    `plan` and the groups are in the order of TorchRec's sharded module.
    """
    groups: dict[str, _Group] = {}
    # Where features go, by group: sender, table, first column.
    places: defaultdict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for table, option in enumerate(plan):
        kind = option.sharding_type
        group = groups.setdefault(kind, _Group(kind, topology))
        group.add_table(option, len({shard.offset[1] for shard in option.shards}))
        for shard in option.shards:
            sender = shard.rank // group.ranks_of_sender if group.exchanges else 0
            places[kind].add((sender, table, shard.offset[1]))
            if shard.rank == rank:
                group.add_shard(option, shard.size, optimizer)
    order: list[int] = []
    for kind, group in groups.items():
        tables = [table for _, table, _ in sorted(places[kind])]
        runs = [table for table, _ in groupby(tables)]
        group.senders = len({sender for sender, _, _ in places[kind]})
        group.is_permuted = len(runs) > len(set(runs))
        order += tables
    return list(groups.values()), order != [*range(len(plan))]


def _step_peak(groups: Sequence[_Group], is_reordered: bool) -> float:
    """Return the largest number of bytes allocated at once in a step, with the kept ones."""
    # What stays allocated from step to step. A kernel keeps the indices and offsets of its last
    # lookup, and the batch keeps the offsets that were computed from its lengths.
    kept = sum(g.weights + g.optimizer + g.inputs + g.own_offsets for g in groups)
    changes: list[float] = [kept]  # bytes that are allocated, or released if negative

    def change(*sizes: float) -> None:
        changes.extend(sizes)

    # 1. The rank's own indices and lengths are put into the order in which they are sent.
    if is_reordered:
        lengths = sum(group.own_lengths for group in groups)
        change(lengths, lengths, sum(group.own_values for group in groups), -lengths)
    # 2. Those of row-wise tables are divided by the rank, and by the host, of their row.
    for group in groups:
        if group.reduces:
            split, values = group.split_lengths, group.own_values
            change(split, values, group.own_lengths, split, -split, -group.own_lengths)
            if group.kind != _ROW_WISE:
                change(split, split, values, -split, -values, -split)
    # 3. Other ranks' are received, and put into the order of features. Only they remain.
    received = sum(group.inputs for group in groups)
    for group in groups:
        change(group.inputs)
    for group in groups:
        change(group.lengths, group.inputs, -group.lengths)
    change(kept + received - sum(changes))
    # 4. Rows are looked up and pooled. A kernel replaces its kept indices and offsets by new ones.
    previous = 0.0
    for group in groups:
        change(group.lengths, -group.inputs, group.looked_up, -previous)
        previous = group.looked_up
        # 5. Pooled vectors are reduced to one rank's, if a host's ranks share rows, and sent.
        reduced = group.looked_up / group.ranks_of_sender
        kept_apart = reduced if group.reduces and group.exchanges else 0.0
        change(kept_apart, group.outputs)
        if group.exchanges:
            change(reduced, -reduced)
        change(-kept_apart)
    change(-previous - sum(group.lengths for group in groups))
    # 6. Received vectors are put into the order of tables, and those of all groups together.
    for group in groups:
        if group.exchanges:
            change(group.outputs, -group.outputs)
    outputs = sum(group.outputs for group in groups)
    if len(groups) > 1:
        change(outputs, -outputs)
    # 7. Gradients of outputs are sent back: made contiguous, copied for each sender, and copied
    # into one tensor.
    for group in reversed(groups):
        outputs = group.outputs
        if group.kind == _ROW_WISE:
            change(group.looked_up, outputs, -outputs)
        elif group.exchanges:
            copied = outputs * (group.senders > 1)
            first = outputs * (not group.is_permuted)
            back = group.looked_up / group.ranks_of_sender
            change(outputs, copied, outputs, -copied)
            change(-first, back, first - 2 * outputs)
    # 8. Gradients of looked-up vectors are gathered where they are not yet, and used up.
    for group in reversed(groups):
        if group.kind in _ROWS_OF_A_HOST:
            change(group.looked_up)
            if group.exchanges:
                change(-group.looked_up / group.ranks_of_sender)
            else:
                change(group.outputs, -group.outputs)
        change(-group.looked_up)
    return max(accumulate(changes))


class StepStorageEstimator(EmbeddingStorageEstimator):
    """TorchRec's storage estimate, or the peak of a step where that is more.

    TorchRec counts weights, optimizer, inputs and the vectors looked up, once each. A step also has
    gradients, copies around collectives, and the vectors of other ranks' tables. A shard's share of
    those is estimated as if each rank had a shard like it. Only kernel `fused` is changed.
    """

    looks_at_one_shard = True

    def estimate(
        self, sharding_options: list[ShardingOption], sharder_data_map: SharderDataMap
    ) -> None:
        """Set the storage of all shards."""
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            params = sharder_data_map[option.module_type_key].fused_params
            optimizer = _optimizer_of(option, params)
            if option.compute_kernel != _FUSED or not option.is_pooled or optimizer is None:
                continue
            for shard in option.shards:
                if not math.prod(shard.size):
                    continue
                group = _Group(option.sharding_type, self._topology)
                parts = math.ceil(option.tensor.shape[1] / shard.size[1])
                group.add_table(option, parts)
                group.add_shard(option, shard.size, optimizer)
                if group.exchanges:
                    group.senders = self._topology.world_size // group.ranks_of_sender
                    group.outputs *= group.senders / parts
                    group.is_permuted = parts > 1
                peak = round(_step_peak([group], is_reordered=True))
                shard.storage.hbm = max(shard.storage.hbm, peak)


def _optimizer_of(option: ShardingOption, fused_params: dict[str, Any]) -> str | None:
    """Return the name of a table's optimizer; None for one that is not known here."""
    attached = getattr(option.tensor, "_optimizer_classes", None)
    fused = fused_params.get("optimizer", EmbOptimType.EXACT_SGD)
    for name, optimizer in OPTIMIZERS.items():
        if optimizer.kind is attached[0] if attached else optimizer.fused == fused:
            return name
    return None

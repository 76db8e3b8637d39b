"""Computes the peak of a rank's memory in a step, by replaying its allocations in their order.

Each sharding type has its own collectives, and so its own sequence of allocations and releases. The
sequences are those of torchrec 1.9.2, found in recorded allocations. Nothing in them is fitted.
"""

from collections.abc import Sequence

from torchrec.distributed.planner.types import ShardingOption, Topology

from planners.embedding.memory.rank_bytes import OF_RANK, PEAK, Terms
from planners.embedding.memory.shard_bytes import (
    DATA_PARALLEL,
    ROW_WISE,
    ROWS_OF_A_HOST,
    TypeBytes,
    rank_groups,
)


def derived_terms(
    plan: Sequence[ShardingOption], topology: Topology, optimizer: str
) -> list[Terms]:
    """Return the bytes of each rank of a plan, by sharding type and term, and its peak."""
    found: list[Terms] = []
    for rank in range(topology.world_size):
        groups = rank_groups(plan, topology, rank, optimizer)
        terms = {group.kind: group.terms for group in groups}
        found.append({**terms, OF_RANK: {PEAK: round(step_peak(groups))}})
    return found


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
            if group.kind != ROW_WISE:
                live.change(split, split, values, -split, -values, -split)
    received = [group for group in groups if group.kind != DATA_PARALLEL]
    for group in received:
        live.change(group.inputs)
    for group in received:  # put into the order of features
        live.change(group.lengths, group.inputs, -group.lengths)
    live.change(start + sum(group.inputs for group in received) - live.now)


def _look_up(groups: Sequence[TypeBytes], live: _Live) -> None:
    """Look up and pool rows, and send the vectors; afterwards the own outputs are allocated."""
    previous = 0.0
    for group in groups:
        if group.kind == DATA_PARALLEL:
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
    lengths = sum(group.lengths for group in groups if group.kind != DATA_PARALLEL)
    live.change(-previous - lengths)
    for group in groups:
        if group.exchanges:  # vectors are put into the order of tables
            live.change(group.outputs, -group.outputs)


def _return_gradients(group: TypeBytes, live: _Live) -> None:
    """Send the gradients of outputs back; afterwards those of looked-up vectors are allocated."""
    outputs = group.outputs
    if group.kind == ROW_WISE:
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
    if group.kind == DATA_PARALLEL:
        live.change(group.weights, -group.weights)
        return
    if group.kind in ROWS_OF_A_HOST:
        live.change(group.looked_up)
        if group.exchanges:
            live.change(-group.reduced)
        else:
            live.change(group.outputs, -group.outputs)
    live.change(-group.looked_up)

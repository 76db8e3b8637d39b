"""DeepSeek's decision, on torch's float32: scalar by scalar, with a heap, and compiled."""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from planners.experts import kernels
from planners.experts.problem import Slots
from planners.experts.published.balancer import Balancer, Weights


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread; several would wait for each other on a single core."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _replicated(weights: Weights, slots: int) -> tuple[Slots, Weights]:
    import torch

    weight = torch.from_numpy(weights)
    rows, experts = weight.shape
    owner = torch.arange(slots).repeat(rows, 1)
    counts = torch.ones_like(weight, dtype=torch.int64)
    row = torch.arange(rows)
    for slot in range(experts, slots):
        hottest = (weight / counts).max(dim=-1).indices
        owner[:, slot] = hottest
        counts[row, hottest] += 1
    return owner.numpy(), (weight / counts).gather(1, owner).numpy()


def _order(share: Weights) -> Slots:
    """Return the slots of each row by decreasing share, equal ones in torch's order."""
    import torch

    order: Slots = torch.from_numpy(share).float().sort(-1, descending=True).indices.numpy()
    return order


def pack_scalars(share: Weights, packs: int) -> Slots:
    """Pack with torch scalars, as DeepSeek does."""
    import torch

    weight = torch.from_numpy(share)
    size = weight.shape[1] // packs
    packed = []
    for row, order in zip(weight, _order(share).tolist(), strict=True):
        loads: list[Any] = [0] * packs
        held: list[list[int]] = [[] for _ in range(packs)]
        for item in order:
            open_packs = (pack for pack in range(packs) if len(held[pack]) < size)
            pack = min(open_packs, key=loads.__getitem__)
            held[pack].append(item)
            loads[pack] += row[item]
        packed.append([item for items in held for item in items])
    return np.array(packed)


def _pack_by_heap(share: Weights, packs: int) -> Slots:
    size = share.shape[1] // packs
    packed = []
    for row, order in zip(share, _order(share).tolist(), strict=True):
        loads = [(np.float32(0), pack) for pack in range(packs)]
        held: list[list[int]] = [[] for _ in range(packs)]
        for item in order:
            load, pack = loads[0]
            held[pack].append(item)
            if len(held[pack]) == size:
                heapq.heappop(loads)
            else:
                heapq.heapreplace(loads, (load + row[item], pack))
        packed.append([item for items in held for item in items])
    return np.array(packed)


def _replicated_compiled(weight: Weights, slots: int) -> tuple[Slots, Weights]:
    return kernels.replicate(weight, slots)[:2]


def _pack_compiled(share: Weights, packs: int) -> Slots:
    return kernels.pack(_order(share), share, packs)


def pack_float32_compiled(share: Weights, packs: int) -> Slots:
    """Pack with sums in float32, without torch: other experts of equal shares can come first."""
    shares = share.astype(np.float32)
    order = np.argsort(-shares, axis=1, kind="stable")
    return kernels.pack(order, shares, packs)


def _total(weights: Weights) -> Weights:
    import torch

    total: Weights = torch.from_numpy(weights).sum(-1).numpy()
    return total


SCALARS = Balancer(_replicated, pack_scalars, _total)
HEAP = Balancer(_replicated, _pack_by_heap, _total)
COMPILED = Balancer(_replicated_compiled, _pack_compiled, _total)
FLOAT32 = Balancer(_replicated_compiled, pack_float32_compiled)

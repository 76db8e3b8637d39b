"""DeepSeek's balancer and a faster one with the same decision, on torch's float32."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from planners.experts.problem import ExpertsProblem, Placement

if TYPE_CHECKING:
    import torch

Packing = Callable[["torch.Tensor", int], "torch.Tensor"]


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


def placed(problem: ExpertsProblem, packing: Packing) -> Placement:
    """Place groups on nodes, replicate within each node, and place the replicas on its GPUs."""
    import torch

    nodes, groups = problem.nodes, problem.groups if problem.nodes > 1 else 1
    weight = torch.from_numpy(problem.loads).float()
    experts = problem.experts
    members = torch.arange(experts).view(groups, -1)
    if nodes == 1:
        ordered = torch.arange(experts).expand(problem.layers, experts)
    else:
        group_loads = weight.unflatten(-1, (groups, -1)).sum(-1)
        ordered = members[packing(group_loads, nodes)].flatten(1)
    local = weight.gather(1, ordered).view(-1, experts // nodes)
    owner, counts = _replicated(local, problem.slots // nodes)
    shares = (local / counts).gather(1, owner)
    packed = packing(shares, problem.gpus // nodes)
    placed = owner.gather(1, packed).view(problem.layers, nodes, -1)
    offset = torch.arange(nodes).view(1, -1, 1) * (experts // nodes)
    slots = ordered.gather(1, (placed + offset).flatten(1))
    return Placement(slots.numpy().astype(np.int64))


def _replicated(weight: "torch.Tensor", slots: int) -> "tuple[torch.Tensor, torch.Tensor]":
    import torch

    rows, experts = weight.shape
    owner = torch.arange(slots).repeat(rows, 1)
    counts = torch.ones_like(weight, dtype=torch.int64)
    row = torch.arange(rows)
    for slot in range(experts, slots):
        hottest = (weight / counts).max(dim=-1).indices
        owner[:, slot] = hottest
        counts[row, hottest] += 1
    return owner, counts


def _pack(
    weight: "torch.Tensor", packs: int, chosen: Callable[[Sequence[int], Any, int, int], list[int]]
) -> "torch.Tensor":
    """Return the items of each pack in the order in which they came to it."""
    import torch

    rows, items = weight.shape
    if items == packs:
        return torch.arange(items).expand(rows, items)
    order = weight.float().sort(-1, descending=True).indices
    return torch.tensor(
        [chosen(order[row].tolist(), weight[row], packs, items // packs) for row in range(rows)]
    )


def pack_scalars(weight: "torch.Tensor", packs: int) -> "torch.Tensor":
    """Pack with torch scalars, as DeepSeek does."""

    def chosen(order: Sequence[int], weights: Any, packs: int, size: int) -> list[int]:
        loads: list[Any] = [0] * packs
        held: list[list[int]] = [[] for _ in range(packs)]
        for item in order:
            open_packs = (pack for pack in range(packs) if len(held[pack]) < size)
            pack = min(open_packs, key=loads.__getitem__)
            held[pack].append(item)
            loads[pack] += weights[item]
        return [item for items in held for item in items]

    return _pack(weight, packs, chosen)


def pack_by_heap(weight: "torch.Tensor", packs: int) -> "torch.Tensor":
    """Pack with a heap of the loads of GPUs."""

    def chosen(order: Sequence[int], weights: Any, packs: int, size: int) -> list[int]:
        values = weights.numpy()  # float32, so that sums are rounded as torch's
        loads = [(np.float32(0), pack) for pack in range(packs)]
        held: list[list[int]] = [[] for _ in range(packs)]
        for item in order:
            load, pack = loads[0]
            held[pack].append(item)
            if len(held[pack]) == size:
                heapq.heappop(loads)
            else:
                heapq.heapreplace(loads, (load + values[item], pack))
        return [item for items in held for item in items]

    return _pack(weight, packs, chosen)

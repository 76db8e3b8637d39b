"""The published balancers: DeepSeek's on torch's float32, vLLM's in NumPy, compiled twins, FlashLB.

A balancer puts groups onto nodes, replicates experts, and packs replicas onto GPUs. Its functions
take rows of loads; a row is a layer, or one node of a layer.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from harness.contract import Prepared
from planners.experts import kernels
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots, experts_on

Weights = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Balancer:
    """A way to replicate, and a way to pack.

    `replication` returns the expert and the load of each slot, `packing` the items of each pack.
    `total` sums the loads of groups; the order of its additions decides ties.
    """

    replication: Callable[[Weights, int], tuple[Slots, Weights]]
    packing: Callable[[Weights, int], Slots]
    total: Callable[[Weights], Weights] = methodcaller("sum", axis=-1)

    def place(self, problem: ExpertsProblem) -> Placement:
        """Place groups on nodes, replicate within each node, and place replicas on its GPUs."""
        nodes, experts = problem.nodes, problem.experts // problem.nodes
        weight = problem.loads.astype(np.float32)
        ordered = np.tile(np.arange(problem.experts), (problem.layers, 1))
        if nodes > 1:
            members = np.arange(problem.experts).reshape(problem.groups, -1)
            sums = self.total(weight.reshape(problem.layers, problem.groups, -1))
            ordered = members[self.pack(sums, nodes)].reshape(problem.layers, -1)
        local = np.take_along_axis(weight, ordered, axis=1).reshape(-1, experts)
        owner, share = self.replicate(local, problem.slots // nodes)
        slots = np.take_along_axis(owner, self.pack(share, problem.gpus // nodes), axis=1)
        offset = np.arange(nodes)[None, :, None] * experts
        slots = (slots.reshape(problem.layers, nodes, -1) + offset).reshape(problem.layers, -1)
        return Placement(np.take_along_axis(ordered, slots, axis=1))

    def prepared(self, problem: ExpertsProblem) -> Prepared[Placement]:
        """Set the balancer up; machine code is loaded before the first timed call."""
        self.place(problem.layer(0))
        is_torch = self.total is _total_by_torch
        return Prepared(lambda: self.place(problem), _one_thread if is_torch else nullcontext)

    def replicate(self, weight: Weights, slots: int) -> tuple[Slots, Weights]:
        """Return the expert and the load of each slot, by row."""
        return self.replication(weight, slots)

    def pack(self, share: Weights, packs: int) -> Slots:
        """Return the items of each pack, in the order in which they came to it, by row."""
        rows, items = share.shape
        if items == packs:
            return np.tile(np.arange(items), (rows, 1))
        return self.packing(share, packs)


# --- DeepSeek's decision, on torch's float32 ------------------------------------------------------


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread; several would wait for each other on a single core."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _replicated_by_torch(weights: Weights, slots: int) -> tuple[Slots, Weights]:
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


def _total_by_torch(weights: Weights) -> Weights:
    import torch

    total: Weights = torch.from_numpy(weights).sum(-1).numpy()
    return total


def _order_of_torch(share: Weights) -> Slots:
    """Return the slots of each row by decreasing share, equal ones in torch's order."""
    import torch

    order: Slots = torch.from_numpy(share).float().sort(-1, descending=True).indices.numpy()
    return order


def _pack_scalars(share: Weights, packs: int) -> Slots:
    """Pack with torch scalars, as DeepSeek does."""
    import torch

    weight = torch.from_numpy(share)
    size = weight.shape[1] // packs
    packed = []
    for row, order in zip(weight, _order_of_torch(share).tolist(), strict=True):
        loads: list[Any] = [0] * packs
        items: list[list[int]] = [[] for _ in range(packs)]
        for item in order:
            open_packs = (pack for pack in range(packs) if len(items[pack]) < size)
            pack = min(open_packs, key=loads.__getitem__)
            items[pack].append(item)
            loads[pack] += row[item]
        packed.append([item for pack in items for item in pack])
    return np.array(packed)


def _pack_by_heap(share: Weights, packs: int) -> Slots:
    size = share.shape[1] // packs
    packed = []
    for row, order in zip(share, _order_of_torch(share).tolist(), strict=True):
        loads = [(np.float32(0), pack) for pack in range(packs)]
        items: list[list[int]] = [[] for _ in range(packs)]
        for item in order:
            load, pack = loads[0]
            items[pack].append(item)
            if len(items[pack]) == size:
                heapq.heappop(loads)
            else:
                heapq.heapreplace(loads, (load + row[item], pack))
        packed.append([item for pack in items for item in pack])
    return np.array(packed)


def _replicated_in_float32(weight: Weights, slots: int) -> tuple[Slots, Weights]:
    return kernels.replicate(weight, slots)[:2]


def _pack_in_order_of_torch(share: Weights, packs: int) -> Slots:
    return kernels.pack(_order_of_torch(share), share, packs)


def _pack_in_float32(share: Weights, packs: int) -> Slots:
    """Pack with sums in float32, without torch: other experts of equal shares can come first."""
    shares = share.astype(np.float32)
    return kernels.pack(np.argsort(-shares, axis=1, kind="stable"), shares, packs)


# --- The decision of vLLM 0.14 to 0.33, and other packings of its replicas ------------------------


def _replicated(weight: Weights, slots: int) -> tuple[Slots, Weights]:
    rows, experts = weight.shape
    owner = np.tile(np.arange(slots), (rows, 1))
    counts = np.ones((rows, experts), dtype=np.int64)
    row = np.arange(rows)
    for slot in range(experts, slots):
        hottest = np.argmax(weight / counts, axis=-1)
        owner[:, slot] = hottest
        counts[row, hottest] += 1
    return owner, np.take_along_axis(weight / counts, owner, axis=1)


def _pack_rows(weight: Weights, packs: int, kind: type = np.float64) -> Slots:
    """Pack row by row, with sums of type `kind`."""
    rows, items = weight.shape
    size = items // packs
    order = np.argsort(-weight, axis=-1)
    packed = np.empty((rows, items), dtype=np.int64)
    for row in range(rows):
        load: Weights = np.zeros(packs, dtype=kind)
        used = [0] * packs
        for item in order[row]:
            pack = int(np.argmin(load))
            packed[row, pack * size + used[pack]] = item
            used[pack] += 1
            load[pack] = np.inf if used[pack] == size else load[pack] + weight[row, item]
    return packed


def _pack_rows_in_float32(weight: Weights, packs: int) -> Slots:
    return _pack_rows(weight.astype(np.float32), packs, np.float32)


def _pack_batched(weight: Weights, packs: int) -> Slots:
    """Pack one replica of all rows at once."""
    rows, items = weight.shape
    size = items // packs
    order = np.argsort(-weight, axis=-1)
    sorted_weight = np.take_along_axis(weight, order, axis=1).astype(np.float64)
    packed = np.empty((rows, items), dtype=np.int64)
    load = np.zeros((rows, packs))
    used = np.zeros((rows, packs), dtype=np.int64)
    row = np.arange(rows)
    for position in range(items):
        pack = np.argmin(load, axis=1)
        at = used[row, pack]
        packed[row, pack * size + at] = order[:, position]
        used[row, pack] = at + 1
        load[row, pack] += np.where(at + 1 == size, np.inf, sorted_weight[:, position])
    return packed


def _pack_in_zigzag(share: Weights, packs: int) -> Slots:
    """Deal the sorted replicas to the GPUs in turns, each turn in the reverse order (ADRS)."""
    rows, items = share.shape
    turns = np.argsort(-share, axis=-1, kind="stable").reshape(rows, items // packs, packs)
    turns[:, 1::2] = turns[:, 1::2, ::-1].copy()
    return np.ascontiguousarray(turns.transpose(0, 2, 1)).reshape(rows, items)


def _replicated_compiled(weight: Weights, slots: int) -> tuple[Slots, Weights]:
    return kernels.replicate(weight.astype(np.float64), slots)[:2]


def _pack_compiled(share: Weights, packs: int) -> Slots:
    return kernels.pack(np.argsort(-share, axis=-1), share.astype(np.float64), packs)


BALANCERS = {
    "deepseek": Balancer(_replicated_by_torch, _pack_scalars, _total_by_torch),
    "heap": Balancer(_replicated_by_torch, _pack_by_heap, _total_by_torch),
    "numpy-pack": Balancer(_replicated, _pack_rows_in_float32),
    "numpy": Balancer(_replicated, _pack_rows),
    "batched": Balancer(_replicated, _pack_batched),
    "zigzag": Balancer(_replicated, _pack_in_zigzag),
    "compiled": Balancer(_replicated_compiled, _pack_compiled),
    "compiled-deepseek": Balancer(_replicated_in_float32, _pack_in_order_of_torch, _total_by_torch),
}
"""By the names of their variants."""

COMPILED = BALANCERS["compiled"]
STARTS = (
    COMPILED,
    Balancer(_replicated_compiled, _pack_in_float32),  # numpy-pack's, other names of equal experts
    Balancer(_replicated_in_float32, _pack_in_float32),  # DeepSeek's, without torch
    BALANCERS["zigzag"],
)
"""Quick balancers: each layer of every greedy placement is as good in one of them."""


# --- FlashLB: replicas and placement decided together ---------------------------------------------

_GROUPS = 4
_WIDTH = 8


def flashlb(problem: ExpertsProblem) -> Placement:
    """Return FlashLB's placement, with GPUs named for few fetches; it knows no groups."""
    slots = np.array([flashlb_slots(row, problem.gpus, problem.slots) for row in problem.loads])
    if problem.previous is not None:
        shape = (problem.layers, problem.gpus, problem.per_gpu)
        rows = zip(slots.reshape(shape), problem.previous.reshape(shape), strict=True)
        slots = np.array([renamed(*row, problem.experts) for row in rows])
    return Placement(slots.reshape(problem.layers, -1))


def flashlb_slots(weights: Loads, gpus: int, slots: int) -> Slots:
    """Return the experts of each slot of a layer.

    Experts with similar loads form groups, those with the largest loads first. The spare slots of a
    group are searched around the number that greedy replication gives it, while the other experts
    that are left get the rest. Each number is rated by a placement of all replicas.
    """
    experts = len(weights)
    order = np.argsort(-weights, kind="stable")
    size = -(-experts // _GROUPS)
    counts = np.ones(experts, dtype=np.int64)
    spare = slots - experts
    best_slots = np.empty(0, dtype=np.int64)
    for first in range(0, max(experts - size, 1), size):
        group, rest = order[first : first + size], order[first + size :]
        together = _greedy(weights[order[first:]], spare)
        start = int((together[: len(group)] - 1).sum())
        tried = counts.copy()
        best, chosen = np.inf, start
        near = range(max(start - _WIDTH, 0), min(start + _WIDTH, spare) + 1)
        # The nearest numbers come first: of equally good ones, the nearest is taken.
        for more in sorted(near, key=lambda number: abs(number - start)):
            if more < spare and not len(rest):
                continue
            tried[group] = _greedy(weights[group], more)
            tried[rest] = _greedy(weights[rest], spare - more)
            load, made = _apart(weights, tried, gpus)
            if load < best:
                best, best_slots, chosen = load, made, more
        counts[group] = _greedy(weights[group], chosen)
        spare -= chosen
    return best_slots


def _greedy(weights: Loads, spare: int) -> Slots:
    """Return the numbers of replicas with the least largest replica."""
    if not len(weights):
        return np.empty(0, dtype=np.int64)
    counts: Slots = kernels.replicate(weights[None], len(weights) + spare)[2][0]
    return counts


def _apart(weights: Loads, counts: Slots, gpus: int) -> tuple[float, Slots]:
    """Return the largest load and the slots, packed so that an expert's replicas are apart."""
    share = weights / counts
    order = np.argsort(-share, kind="stable")
    owner = np.repeat(order, counts[order])[None]
    slots = np.arange(owner.size)[None]
    packed = owner[0, kernels.pack(slots, share[owner], gpus, owner)[0]]
    return float(share[packed].reshape(gpus, -1).sum(axis=1).max()), packed


def renamed(slots: Slots, old: Slots, experts: int, nodes: int = 1) -> Slots:
    """Return the GPUs x slots in the order that keeps most experts of `old`; nodes stay together.

    The order is exact: an assignment problem for each pair of nodes, and one for all nodes.
    """
    kept = experts_on(old, experts) @ experts_on(slots, experts).T.astype(np.int64)
    size = len(old) // nodes
    blocks = kept.reshape(nodes, size, nodes, size).transpose(0, 2, 1, 3)
    orders = np.array(
        [[linear_sum_assignment(block, maximize=True)[1] for block in row] for row in blocks]
    )
    worth = np.take_along_axis(blocks, orders[..., None], axis=3).sum(axis=(2, 3))
    node = linear_sum_assignment(worth, maximize=True)[1]
    gpus = node[:, None] * size + orders[np.arange(nodes), node]
    named: Slots = slots[gpus.ravel()]
    return named

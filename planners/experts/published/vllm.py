"""The decision of vLLM 0.14 to 0.33, made in three ways; the packing of the releases before."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planners.experts.balancing.kernels import pack, replicate
from planners.experts.problem import ExpertsProblem, Placement, Slots

Weights = NDArray[np.floating[Any]]
Replication = Callable[[Weights, int], tuple[Slots, Weights]]
Packing = Callable[[Weights, int], Slots]


def compiled_placement(problem: ExpertsProblem) -> Placement:
    """Return vLLM 0.33's placement."""
    return placed(problem, lambda weight, slots: replicate(weight, slots)[:2], _pack_compiled)


def placed(problem: ExpertsProblem, replication: Replication, packing: Packing) -> Placement:
    """Place groups on nodes, replicate within each node, and place the replicas on its GPUs."""
    nodes, experts = problem.nodes, problem.experts
    weight = problem.loads.astype(np.float32)
    if nodes == 1:
        owner, shares = replication(weight, problem.slots)
        return Placement(np.take_along_axis(owner, packing(shares, problem.gpus), axis=1))
    members = np.arange(experts).reshape(problem.groups, -1)
    sums = weight.reshape(problem.layers, problem.groups, -1).sum(axis=-1)
    ordered = members[packing(sums, nodes)].reshape(problem.layers, -1)
    local = np.take_along_axis(weight, ordered, axis=1).reshape(-1, experts // nodes)
    owner, shares = replication(local, problem.slots // nodes)
    on_gpus = np.take_along_axis(owner, packing(shares, problem.gpus // nodes), axis=1)
    on_nodes = on_gpus.reshape(problem.layers, nodes, -1)
    offset = np.arange(nodes)[None, :, None] * (experts // nodes)
    slots = (on_nodes + offset).reshape(problem.layers, -1)
    return Placement(np.take_along_axis(ordered, slots, axis=1))


def replicated(weight: Weights, slots: int) -> tuple[Slots, Weights]:
    """Return the expert and the load of each slot, by row."""
    rows, experts = weight.shape
    owner = np.tile(np.arange(slots), (rows, 1))
    counts = np.ones((rows, experts), dtype=np.int64)
    row = np.arange(rows)
    for slot in range(experts, slots):
        hottest = np.argmax(weight / counts, axis=-1)
        owner[:, slot] = hottest
        counts[row, hottest] += 1
    return owner, np.take_along_axis(weight / counts, owner, axis=1)


def pack_rows(weight: Weights, packs: int, kind: type = np.float64) -> Slots:
    """Pack row by row, with sums of type `kind`."""
    rows, items = weight.shape
    size = items // packs
    if size == 1:
        return np.tile(np.arange(items), (rows, 1))
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


def pack_float32(weight: Weights, packs: int) -> Slots:
    """Pack row by row, with sums in float32."""
    return pack_rows(weight.astype(np.float32), packs, np.float32)


def pack_batched(weight: Weights, packs: int) -> Slots:
    """Pack one replica of all rows at once."""
    rows, items = weight.shape
    size = items // packs
    if size == 1:
        return np.tile(np.arange(items), (rows, 1))
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


def _pack_compiled(weight: Weights, packs: int) -> Slots:
    rows, items = weight.shape
    if items == packs:
        return np.tile(np.arange(items), (rows, 1))
    order = np.argsort(-weight, axis=-1)
    packed: Slots = pack(order, weight.astype(np.float64), packs)
    return packed

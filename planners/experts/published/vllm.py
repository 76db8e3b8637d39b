"""The decision of vLLM 0.14 to 0.33, made in three ways; other packings for its replicas."""

import numpy as np

from planners.experts import kernels
from planners.experts.problem import Slots
from planners.experts.published.balancer import Balancer, Weights
from planners.experts.published.deepseek import pack_float32_compiled


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


def _pack_float32(weight: Weights, packs: int) -> Slots:
    """Pack row by row, with sums in float32."""
    return pack_rows(weight.astype(np.float32), packs, np.float32)


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


def _replicated_compiled(weight: Weights, slots: int) -> tuple[Slots, Weights]:
    return kernels.replicate(weight.astype(np.float64), slots)[:2]


def _pack_compiled(share: Weights, packs: int) -> Slots:
    return kernels.pack(np.argsort(-share, axis=-1), share.astype(np.float64), packs)


def _pack_in_zigzag(share: Weights, packs: int) -> Slots:
    """Deal the sorted replicas to the GPUs in turns, each turn in the reverse order (ADRS)."""
    rows, items = share.shape
    turns = np.argsort(-share, axis=-1, kind="stable").reshape(rows, items // packs, packs)
    turns[:, 1::2] = turns[:, 1::2, ::-1].copy()
    return np.ascontiguousarray(turns.transpose(0, 2, 1)).reshape(rows, items)


NUMPY_PACK = Balancer(replicated, _pack_float32)
NUMPY = Balancer(replicated, pack_rows)
BATCHED = Balancer(replicated, _pack_batched)
ZIGZAG = Balancer(replicated, _pack_in_zigzag)
COMPILED = Balancer(_replicated_compiled, _pack_compiled)
# the decision of numpy-pack, with other names of equal experts
MIXED = Balancer(_replicated_compiled, pack_float32_compiled)
compiled_placement = COMPILED.place

"""Packing without comparing loads: sorted replicas in zigzag over the GPUs."""

import numpy as np

from planners.experts.problem import Slots
from planners.experts.published.balancer import Weights


def pack_in_zigzag(share: Weights, packs: int) -> Slots:
    """Deal the sorted replicas to the GPUs in turns, each turn in the reverse order."""
    rows, items = share.shape
    turns = np.argsort(-share, axis=-1, kind="stable").reshape(rows, items // packs, packs)
    turns[:, 1::2] = turns[:, 1::2, ::-1].copy()
    return np.ascontiguousarray(turns.transpose(0, 2, 1)).reshape(rows, items)

"""Packing without comparing loads: sorted replicas in zigzag over the GPUs."""

import numpy as np

from harness.contract import Claim, Prepared
from planners.experts.family import FAMILY
from planners.experts.problem import ExpertsProblem, Placement, Slots
from planners.experts.variants.vllm import Weights, placed, replicated


@FAMILY.variant(
    "zigzag",
    source="ADRS, blog of October 2025",
    claim=Claim(540, 3.7, "ms", "as published"),
)
def zigzag(problem: ExpertsProblem) -> Prepared[Placement]:
    """Replicas sorted by load and dealt to the GPUs in turns, each turn in the reverse order"""
    return Prepared(lambda: placed(problem, replicated, _dealt))


def _dealt(weight: Weights, packs: int) -> Slots:
    rows, items = weight.shape
    turns = np.argsort(-weight, axis=-1, kind="stable").reshape(rows, items // packs, packs)
    turns[:, 1::2] = turns[:, 1::2, ::-1].copy()
    return np.ascontiguousarray(turns.transpose(0, 2, 1)).reshape(rows, items)

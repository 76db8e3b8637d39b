"""Policies with vLLM's and SGLang's names and arguments, without groups; written for tests."""

import numpy as np
import torch

from planners.experts.problem import Placement
from planners.experts.published import DEEPSEEK, NUMPY


def in_packs(packed, packs):
    at = np.empty_like(packed)
    np.put_along_axis(at, packed, np.broadcast_to(np.arange(at.shape[1]), at.shape), axis=1)
    size = at.shape[1] // packs
    return at // size, at % size


def placed(loads, slots, gpus, replicate, pack):
    assert slots % gpus == 0
    owner, counts = replicate(loads, slots)
    packs, place = pack(np.take_along_axis(loads / counts, owner, axis=1), gpus)
    made = np.empty_like(owner)
    np.put_along_axis(made, packs * (slots // gpus) + place, owner, axis=1)
    return made, counts


class DefaultEplbPolicy:
    """vLLM's name."""

    @classmethod
    def balanced_packing(cls, weight, num_packs):
        return in_packs(NUMPY.pack(weight, num_packs), num_packs)

    @classmethod
    def replicate_experts(cls, weight, num_phy):
        owner, _ = NUMPY.replicate(weight, num_phy)
        return owner, Placement(owner).counts(weight.shape[1])

    @classmethod
    def _other(cls, weight, num_phy):
        owner = np.tile(np.arange(num_phy) % weight.shape[1], (len(weight), 1))
        return owner, Placement(owner).counts(weight.shape[1])

    @classmethod
    def preserve_intragpu_slots(cls, phy2log, num_ranks, old_phy2log):
        made = phy2log.copy().reshape(len(phy2log), num_ranks, -1)
        for layer, old in zip(made, old_phy2log.reshape(made.shape), strict=True):
            for held, before in zip(layer, old, strict=True):
                left, kept = held.tolist(), []
                for expert in before.tolist():
                    kept.append(expert in left)
                    if kept[-1]:
                        left.remove(expert)
                held[:] = [e if k else left.pop(0) for e, k in zip(before, kept, strict=True)]
        return made.reshape(phy2log.shape)

    @classmethod
    def rebalance_experts(
        cls, weight, num_replicas, num_groups, num_nodes, num_ranks, old_global_expert_indices=None
    ):
        loads = weight.float().numpy()
        parts = cls.replicate_experts, cls.balanced_packing
        slots, _ = placed(loads, num_replicas, num_ranks, *parts)
        if old_global_expert_indices is not None:
            old = old_global_expert_indices.numpy()
            slots = cls.preserve_intragpu_slots(slots, num_ranks, old)
        return torch.from_numpy(slots)


def balanced_packing(weight, num_packs):
    packed = DEEPSEEK.pack(weight.double().numpy(), num_packs)
    return tuple(map(torch.from_numpy, in_packs(packed, num_packs)))


def rebalance_experts(weight, num_replicas, num_groups, num_nodes, num_gpus, enable_hierarchical):
    def pack(shares, packs):
        return [part.numpy() for part in balanced_packing(torch.from_numpy(shares), packs)]

    loads = weight.float().numpy()
    parts = DefaultEplbPolicy.replicate_experts, pack
    slots, counts = map(torch.from_numpy, placed(loads, num_replicas, num_gpus, *parts))
    padded = torch.full((*loads.shape, int(counts.max())), -1)
    for layer, row in enumerate(slots.tolist()):
        for slot, expert in enumerate(row):
            padded[layer, expert, int((padded[layer, expert] >= 0).sum())] = slot
    return slots, padded, counts

"""Problems of the experts family, and their decisions."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Loads = NDArray[np.float64]
Slots = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ExpertsProblem:
    """Loads of the experts of each layer, and the GPUs that hold their replicas.

    Attributes:
        loads: tokens of each expert, by layer: the loads to plan for.
        following: the loads of the next window; a decision is rated on them too.
        gpus: the number of GPUs. GPU g has the slots from g * per_gpu to before (g + 1) * per_gpu.
        per_gpu: slots of a GPU; each slot holds one replica.
        groups: groups of consecutive experts; all replicas of a group must be on one node.
        nodes: nodes of gpus / nodes consecutive GPUs; 1 unless groups must share a node.
        expert_bytes: bytes of one expert's weights.
        previous: the placement in force, or None.
        budget: experts that may be fetched in each layer, None if the balance is the goal.
        known: figures that hold for all decisions.
    """

    loads: Loads
    following: Loads
    gpus: int
    per_gpu: int
    groups: int = 1
    nodes: int = 1
    expert_bytes: int = 0
    previous: Slots | None = None
    budget: int | None = None
    known: dict[str, float] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.loads.shape[0])

    @property
    def experts(self) -> int:
        """The number of experts in each layer."""
        return int(self.loads.shape[1])

    @property
    def slots(self) -> int:
        """The number of slots in each layer."""
        return self.gpus * self.per_gpu

    def layer(self, number: int) -> "ExpertsProblem":
        """Return the problem of one layer alone."""
        only = slice(number, number + 1)
        previous = None if self.previous is None else self.previous[only]
        loads, following = self.loads[only], self.following[only]
        return replace(self, loads=loads, following=following, previous=previous, known={})

    def facts(self) -> dict[str, float | str]:
        """Return facts for reports; `layers`, the first one, is the problem size."""
        return {
            "layers": self.layers,
            "experts": self.experts,
            "slots": self.slots,
            "slots per GPU": self.per_gpu,
            "groups x nodes": f"{self.groups} x {self.nodes}",
        }


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The expert in each slot, by layer."""

    slots: Slots

    def counts(self, experts: int) -> Slots:
        """Return the number of replicas of each expert, by layer."""
        rows = np.arange(len(self.slots))[:, None] * experts
        counted = np.bincount((self.slots + rows).ravel(), minlength=len(self.slots) * experts)
        return counted.reshape(-1, experts)

    def gpu_loads(self, loads: Loads, gpus: int) -> Loads:
        """Return the load of each GPU, by layer; replicas share their expert's load evenly."""
        shares = loads / np.maximum(self.counts(loads.shape[1]), 1)
        by_gpu = np.take_along_axis(shares, self.slots, axis=1).reshape(len(loads), gpus, -1)
        summed: Loads = by_gpu.sum(axis=2)
        return summed

    def on_gpus(self, experts: int, gpus: int) -> NDArray[np.bool_]:
        """Return whether each GPU has each expert, by layer."""
        return experts_on(self.slots.reshape(len(self.slots), gpus, -1), experts)


def experts_on(slots: Slots, experts: int) -> NDArray[np.bool_]:
    """Return whether each row of slots has each expert."""
    is_there = np.zeros((*slots.shape[:-1], experts), dtype=bool)
    np.put_along_axis(is_there, slots, True, axis=-1)
    return is_there


def over_mean(gpu_loads: Loads, loads: Loads, gpus: int) -> Loads:
    """Return loads of layers x GPUs over the mean load of a GPU; 1 for a layer without load."""
    mean = loads.sum(axis=1, keepdims=True) / gpus
    relative = np.ones_like(gpu_loads)
    np.divide(gpu_loads, mean, out=relative, where=mean > 0)
    return relative


def imbalance(placement: Placement, loads: Loads, gpus: int) -> Loads:
    """Return the largest over the mean load of a GPU, by layer."""
    largest: Loads = over_mean(placement.gpu_loads(loads, gpus), loads, gpus).max(axis=1)
    return largest


def fetched(problem: ExpertsProblem, placement: Placement) -> Slots:
    """Return the experts that each GPU must fetch, by layer; 0 without a placement in force."""
    if problem.previous is None:
        return np.zeros((problem.layers, problem.gpus), dtype=np.int64)
    now = placement.on_gpus(problem.experts, problem.gpus)
    before = Placement(problem.previous).on_gpus(problem.experts, problem.gpus)
    new: Slots = (now & ~before).sum(axis=2)
    return new

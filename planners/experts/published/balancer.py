"""The steps of the published balancers: groups onto nodes, replicas, and replicas onto GPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planners.experts.problem import ExpertsProblem, Placement, Slots

Weights = NDArray[np.floating[Any]]
Replication = Callable[[Weights, int], tuple[Slots, Weights]]
Packing = Callable[[Weights, int], Slots]


@dataclass(frozen=True, slots=True)
class Balancer:
    """A way to replicate, and a way to pack; both take rows of float32 loads.

    `replication` returns the expert and the load of each slot, `packing` the items of each pack.
    `total` sums the loads of groups; the order of its additions decides ties.
    """

    replication: Replication
    packing: Packing
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
        held = np.take_along_axis(owner, self.pack(share, problem.gpus // nodes), axis=1)
        offset = np.arange(nodes)[None, :, None] * experts
        slots = (held.reshape(problem.layers, nodes, -1) + offset).reshape(problem.layers, -1)
        return Placement(np.take_along_axis(ordered, slots, axis=1))

    def replicate(self, weight: Weights, slots: int) -> tuple[Slots, Weights]:
        """Return the expert and the load of each slot, by row."""
        return self.replication(weight, slots)

    def pack(self, share: Weights, packs: int) -> Slots:
        """Return the items of each pack, in the order in which they came to it, by row."""
        rows, items = share.shape
        if items == packs:
            return np.tile(np.arange(items), (rows, 1))
        return self.packing(share, packs)

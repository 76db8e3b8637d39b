"""The cost of one conversion step in ColossalAI's model, in its cost units.

Source: hpcaitech/ColossalAI v0.4.1, colossalai/device/device_mesh.py and
colossalai/tensor/comm_spec.py. Keep the order of operations: another order rounds differently.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from planners.dimspec.conversion.partition import Mesh

new_tuple: Callable[..., Any] = tuple.__new__
"""Make a named tuple in half the time that its own constructor takes."""

_OTHER_WAY = 100.0
"""ColossalAI's cost of a split, in a split's forward and a gather's backward pass."""


class Pattern(StrEnum):
    """The collectives of a step: one in the forward pass, one for the gradient."""

    GATHER = "GATHER_FWD_SPLIT_BWD"
    ALL_TO_ALL = "ALL2ALL_FWD_ALL2ALL_BWD"
    SPLIT = "SPLIT_FWD_GATHER_BWD"


class Cost(NamedTuple):
    """Costs of the forward pass, of the backward pass and of both, in cost units."""

    forward: float
    backward: float
    total: float

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum with another cost, field by field."""
        return Cost(
            self.forward + other.forward, self.backward + other.backward, self.total + other.total
        )

    def compounded(self, step: "Cost") -> "Cost":
        """Return ColossalAI's sum of this cost and the next step's: it counts this cost twice."""
        forward, backward, total = self
        step_forward, step_backward, step_total = step
        made: Cost = new_tuple(
            Cost,
            (
                forward + (forward + step_forward),
                backward + (backward + step_backward),
                total + (total + step_total),
            ),
        )
        return made


NOTHING = Cost(0.0, 0.0, 0.0)


class CommSpec(NamedTuple):
    """One conversion step: a collective along mesh axis `logical_process_axis`.

    `gather_dim` and `shard_dim` are tensor dimensions, equal for a gather and for a split.
    """

    pattern: Pattern
    gather_dim: int
    shard_dim: int
    logical_process_axis: int


def step_cost(mesh: Mesh, pattern: Pattern, axis: int, elements: int) -> Cost:
    """Return the cost of a step along mesh axis `axis`; each device has `elements` before it."""
    size, alpha, beta = mesh.shape[axis], mesh.alpha[axis], mesh.beta[axis]
    if pattern is Pattern.ALL_TO_ALL:
        half = size / 2.0
        moved = alpha + beta * (size - 1) / size / size * elements * half + 0.001
        return Cost(moved, moved, moved + moved)
    gathered = alpha + beta * (size - 1) / size * elements + 0.1
    if pattern is Pattern.GATHER:
        return Cost(gathered, _OTHER_WAY, gathered + _OTHER_WAY)
    return Cost(_OTHER_WAY, gathered, _OTHER_WAY + gathered)

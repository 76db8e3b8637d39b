"""The cost of one step of a conversion, as ColossalAI models it, in cost units.

Source: hpcaitech/ColossalAI v0.4.1, colossalai/device/device_mesh.py and
colossalai/tensor/comm_spec.py. The order of the operations decides the last bit.
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
    """The collective of the forward pass, and that of the gradient in the backward pass."""

    GATHER = "GATHER_FWD_SPLIT_BWD"
    ALL_TO_ALL = "ALL2ALL_FWD_ALL2ALL_BWD"
    SPLIT = "SPLIT_FWD_GATHER_BWD"


class Cost(NamedTuple):
    """Cost units of the forward and the backward pass, and of both."""

    forward: float
    backward: float
    total: float

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum, phase by phase."""
        return Cost(
            self.forward + other.forward, self.backward + other.backward, self.total + other.total
        )

    def compounded(self, step: "Cost") -> "Cost":
        """Return the sum with a step on top, as upstream adds them: it counts this sum twice."""
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
    """One step: along `logical_process_axis` of the mesh, dimensions of the tensor counted from 0.

    A gather and a split name the same dimension twice.
    """

    pattern: Pattern
    gather_dim: int
    shard_dim: int
    logical_process_axis: int


def step_cost(mesh: Mesh, pattern: Pattern, axis: int, elements: int) -> Cost:
    """Return the cost of a step along a mesh axis; each device holds `elements` before it."""
    size, alpha, beta = mesh.shape[axis], mesh.alpha[axis], mesh.beta[axis]
    if pattern is Pattern.ALL_TO_ALL:
        half = size / 2.0
        moved = alpha + beta * (size - 1) / size / size * elements * half + 0.001
        return Cost(moved, moved, moved + moved)
    gathered = alpha + beta * (size - 1) / size * elements + 0.1
    if pattern is Pattern.GATHER:
        return Cost(gathered, _OTHER_WAY, gathered + _OTHER_WAY)
    return Cost(_OTHER_WAY, gathered, _OTHER_WAY + gathered)

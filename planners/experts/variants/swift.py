"""Exchanges between the heaviest and the lightest GPU, from the placement in force."""

import numpy as np

from harness.contract import Claim, NotApplicable, Prepared
from planners.experts.family import FAMILY
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots

_ENOUGH = 1e-3


@FAMILY.variant(
    "swift",
    source="vllm-project/vllm#24069",
    claim=Claim(35.2, 4.4, "ms", "time of transfers, ideal, as published"),
)
def swift(problem: ExpertsProblem) -> Prepared[Placement]:
    """Exchange replicas of the heaviest and lightest GPU of a layer; counts stay as they are"""
    previous = problem.previous
    if previous is None:
        raise NotApplicable("It starts from a placement in force, and there is none.")
    if problem.nodes > 1:
        raise NotApplicable("It knows no groups of experts.")

    def run() -> Placement:
        layers = zip(problem.loads, previous, strict=True)
        return Placement(np.array([_exchanged(*layer, problem.gpus) for layer in layers]))

    return Prepared(run)


def _exchanged(weights: Loads, slots: Slots, gpus: int) -> Slots:
    held = slots.reshape(gpus, -1).copy()
    share = weights / np.bincount(slots, minlength=len(weights))
    load = share[held].sum(axis=1)
    for _ in range(held.size):
        top, low = int(load.argmax()), int(load.argmin())
        delta = share[held[top]][:, None] - share[held[low]][None, :]
        delta[np.isin(held[top], held[low])] = 0
        delta[:, np.isin(held[low], held[top])] = 0
        left = np.maximum(load[top] - delta, load[low] + delta)
        left[delta <= 0] = np.inf
        at, to = np.unravel_index(int(left.argmin()), left.shape)
        if left[at, to] >= load[top] * (1 - _ENOUGH):
            break
        held[top, at], held[low, to] = held[low, to], held[top, at]
        load[[top, low]] += np.array([-1, 1]) * delta[at, to]
    return held.ravel()

"""Exchanges between the heaviest and the lightest GPU, from the placement in force."""

import numpy as np

from planners.experts.problem import Loads, Slots

_ENOUGH = 1e-3


def exchanged(weights: Loads, slots: Slots, gpus: int) -> Slots:
    """Return the slots of a layer after exchanges; counts stay unchanged."""
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

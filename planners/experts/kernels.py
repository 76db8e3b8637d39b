"""Compiled loops over layers. They are in one module, because numba's cache watches one file only.

A row is a layer, or one node of a layer. `placed` has the expert in each slot, GPUs x slots.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])
Step = tuple[int, int, int]
"""A slot of the heaviest GPU, another GPU, and a slot of that."""

ROUNDING = 1e-9
_LAST = 1e300
_MOST_STEPS = 2000
_FREE = 0.05  # a step that fetches nothing counts as a part of a fetch


def compiled(function: F) -> F:
    """Compile a function at its first call, and keep the machine code next to this file."""
    return cast(F, njit(cache=True)(function))


@compiled
def replicate(weights: Array, slots: int) -> tuple[Array, Array, Array]:
    """Give each spare slot to the expert with the largest replica, the first of equal ones.

    This minimises the largest replica. Returns the expert and share of every slot, and the counts.
    Shares have the type of the weights. In float32 they are rounded as torch's: a quotient in
    float64 that is rounded again is the same (Figueroa 1995).
    """
    rows, experts = weights.shape
    owner = np.empty((rows, slots), dtype=np.int64)
    share = np.empty((rows, slots), dtype=weights.dtype)
    counts = np.ones((rows, experts), dtype=np.int64)
    largest = np.empty(experts, dtype=weights.dtype)
    for row in range(rows):
        for expert in range(experts):
            largest[expert] = weights[row, expert]
            owner[row, expert] = expert
        for slot in range(experts, slots):
            expert = int(np.argmax(largest))
            owner[row, slot] = expert
            counts[row, expert] += 1
            largest[expert] = weights[row, expert] / counts[row, expert]
        for slot in range(slots):
            share[row, slot] = largest[owner[row, slot]]
    return owner, share, counts


@compiled
def pack(order: Array, share: Array, gpus: int, owner: Array | None = None) -> Array:
    """Return the slots of each GPU: each item of `order` goes to the lightest GPU with space.

    Sums have the type of the shares. With `owner`, the expert of each slot, an expert's replicas
    must be consecutive; GPUs that got the previous one come last.
    """
    rows, slots = share.shape
    per_gpu = slots // gpus
    packed = np.empty((rows, slots), dtype=np.int64)
    load = np.empty(gpus, dtype=share.dtype)
    used = np.empty(gpus, dtype=np.int64)
    latest = np.empty(gpus, dtype=np.int64)
    for row in range(rows):
        load[:] = 0.0
        used[:] = 0
        latest[:] = -1
        for position in range(slots):
            slot = order[row, position]
            gpu, least = 0, np.inf
            for other in range(gpus):
                now = np.float64(load[other])
                if owner is not None and latest[other] == owner[row, slot]:
                    now += _LAST
                if now < least:
                    gpu, least = other, now
            packed[row, gpu * per_gpu + used[gpu]] = slot
            used[gpu] += 1
            load[gpu] = np.inf if used[gpu] == per_gpu else load[gpu] + share[row, slot]
            if owner is not None:
                latest[gpu] = owner[row, slot]
    return packed


@compiled
def _exchange(
    share: Array, placed: Array, on: Array, was: Array, load: Array, limit: float, counted: bool
) -> tuple[float, Step, int]:
    """Return the best exchange of a replica of the heaviest GPU for a smaller one.

    The gain is divided by the number of fetches if they are counted. Returns it with the slot of
    the heaviest GPU, the other GPU and its slot, and the number of exchanges that were tried. The
    gain is 0 if there is none.
    """
    top = int(np.argmax(load))
    best, step, tried = 0.0, (0, 0, 0), 0
    for slot in range(placed.shape[1]):
        expert = placed[top, slot]
        for gpu in range(placed.shape[0]):
            if on[expert, gpu] or load[gpu] >= load[top]:
                continue
            for place in range(placed.shape[1]):
                other = placed[gpu, place]
                delta = share[expert] - share[other]
                if delta <= 0 or load[gpu] + delta >= load[top] or on[other, top]:
                    continue
                tried += 1
                gain = min(delta, load[top] - load[gpu] - delta)
                cost = 1.0
                if counted:
                    gain = min(delta, load[top] - limit)
                    gain -= max(load[gpu] + delta - limit, 0.0) - max(load[gpu] - limit, 0.0)
                    kept = was[gpu, expert] + was[top, other]
                    cost = max(was[top, expert] + was[gpu, other] - kept, _FREE)
                if gain > best * cost and gain > ROUNDING * load[top]:
                    best, step = gain / cost, (slot, gpu, place)
    return best, step, tried


@compiled
def _replication(
    weights: Array, share: Array, counts: Array, placed: Array, on: Array, was: Array, load: Array,
    limit: float, counted: bool,
) -> tuple[float, Step, int]:  # fmt: skip
    """Return the best replication of an expert of the heaviest GPU, as `_exchange` does.

    The new replica takes the place of a spare one of another expert. The other replicas of both
    experts change their loads too; none may rise to that of the heaviest GPU.
    """
    top = int(np.argmax(load))
    best, step, tried = 0.0, (0, 0, 0), 0
    before = 0.0
    for gpu in range(load.shape[0]):
        before += max(load[gpu] - limit, 0.0)
    after = np.empty_like(load)
    for slot in range(placed.shape[1]):
        expert = placed[top, slot]
        smaller = weights[expert] / (counts[expert] + 1)
        for other in np.flatnonzero(counts > 1):
            if other == expert:
                continue
            # 1. The loads when both experts have their new shares, but the slot still has `other`.
            more = weights[other] / (counts[other] - 1)
            total, blocked = 0.0, 0
            for gpu in range(load.shape[0]):
                after[gpu] = load[gpu] + on[other, gpu] * (more - share[other])
                after[gpu] -= on[expert, gpu] * (share[expert] - smaller)
                total += max(after[gpu] - limit, 0.0)
                blocked += after[gpu] > load[gpu] and after[gpu] >= load[top]
            # 2. Any GPU with `other` can exchange it for the new replica.
            for gpu in range(load.shape[0]):
                if not on[other, gpu] or on[expert, gpu]:
                    continue
                left = blocked - (after[gpu] > load[gpu] and after[gpu] >= load[top])
                now = after[gpu] - more + smaller
                if left or now >= load[top]:
                    continue
                tried += 1
                gain = before - total + max(after[gpu] - limit, 0.0) - max(now - limit, 0.0)
                cost = 1.0
                if counted:
                    cost = max(was[gpu, other] - was[gpu, expert], _FREE)
                if gain > best * cost and gain > ROUNDING * load[top]:
                    best = gain / cost
                    step = (slot, gpu, int(np.argmax(placed[gpu] == other)))
    return best, step, tried


@compiled
def _exchange_two(
    share: Array, placed: Array, load: Array
) -> tuple[float, Step, tuple[int, int], int]:
    """Return the best exchange of two replicas of the heaviest GPU for two of another GPU.

    Returns the gain, a slot of the heaviest GPU, the other GPU and its slot, the second slots of
    both, and the number of exchanges that were tried. The gain is 0 if there is none.
    """
    top = int(np.argmax(load))
    per_gpu = placed.shape[1]
    least = ROUNDING * load[top]
    best, step, second, tried = 0.0, (0, 0, 0), (0, 0), 0
    for gpu in range(placed.shape[0]):
        room = load[top] - load[gpu]
        if room <= max(best, least):
            continue
        for a in range(per_gpu):
            for b in range(a):
                given = share[placed[top, a]] + share[placed[top, b]]
                for c in range(per_gpu):
                    delta = given - share[placed[gpu, c]]
                    for d in range(c):
                        now = delta - share[placed[gpu, d]]
                        gain = min(now, room - now)
                        if gain > best and gain > least:
                            best, step, second = gain, (a, gpu, c), (b, d)
        tried += (per_gpu * (per_gpu - 1) // 2) ** 2
    return best, step, second, tried


@compiled
def _put(placed: Array, on: Array, gpu: int, slot: int, expert: int) -> None:
    """Put an expert in a slot, in the place of another one."""
    on[placed[gpu, slot], gpu] -= 1
    on[expert, gpu] += 1
    placed[gpu, slot] = expert


@compiled
def improve(
    weights: Array, placed: Array, old: Array, limit: float, counted: bool
) -> tuple[float, int, int, int]:
    """Move and replicate experts of the heaviest GPU until no GPU is above `limit`.

    A step exchanges two replicas, or puts one more replica of an expert in the place of another
    expert's spare one. If fetches from the placement `old` are counted, it is the step that lowers
    the sum of the loads above `limit` most for each expert to fetch. Otherwise exchanges come
    first, and each lowers the larger of the two loads most. No step raises the largest load.
    `placed` is changed in place. Returns the largest load, and the numbers of steps tried, of
    exchanges and of replications.
    """
    gpus, per_gpu = placed.shape
    on = np.zeros((weights.shape[0], gpus), dtype=np.int64)
    was = np.zeros((gpus, weights.shape[0]), dtype=np.int64)
    counts = np.zeros(weights.shape[0], dtype=np.int64)
    for gpu in range(gpus):
        for slot in range(per_gpu):
            on[placed[gpu, slot], gpu] += 1
            counts[placed[gpu, slot]] += 1
            was[gpu, old[gpu, slot]] = 1
    load = np.empty(gpus)
    tried, exchanges, replications = 0, 0, 0
    while True:
        # 1. Loads are summed anew, so that roundings do not add up.
        share = weights / np.maximum(counts, 1)
        for gpu in range(gpus):
            load[gpu] = 0.0
            for slot in range(per_gpu):
                load[gpu] += share[placed[gpu, slot]]
        if load.max() <= limit or exchanges + replications >= _MOST_STEPS:
            break
        top = int(np.argmax(load))
        # 2. The best exchange, or the best replication.
        gain, step, rated = _exchange(share, placed, on, was, load, limit, counted)
        tried += rated
        replicates = False
        if gain == 0 or counted:
            more, other, rated = _replication(
                weights, share, counts, placed, on, was, load, limit, counted
            )
            tried += rated
            if more > gain:
                gain, step, replicates = more, other, True
        # 3. If neither has a gain, the best exchange of two; the first of the two is made in 4.
        if gain == 0:
            gain, step, (slot, place), rated = _exchange_two(share, placed, load)
            tried += rated
            if gain == 0:
                break
            expert, taken = placed[top, slot], placed[step[1], place]
            _put(placed, on, top, slot, taken)
            _put(placed, on, step[1], place, expert)
            exchanges += 1
        # 4. Make the step.
        slot, gpu, place = step
        expert, taken = placed[top, slot], placed[gpu, place]
        _put(placed, on, gpu, place, expert)
        if replicates:
            counts[expert] += 1
            counts[taken] -= 1
            replications += 1
        else:
            _put(placed, on, top, slot, taken)
            exchanges += 1
    return load.max(), tried, exchanges, replications

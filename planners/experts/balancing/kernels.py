"""Compiled loops over layers. They are in one module, because numba's cache watches one file only.

A row is a layer, or one node of a layer.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call, and keep the machine code next to this file."""
    return cast(F, njit(cache=True)(function))


@compiled
def replicate(weights: Array, slots: int) -> tuple[Array, Array, Array]:
    """Give each spare slot to the expert with the largest replica, the first of equal ones.

    This minimises the largest replica. Returns the expert and share of every slot, and the counts.
    """
    rows, experts = weights.shape
    owner = np.empty((rows, slots), dtype=np.int64)
    share = np.empty((rows, slots), dtype=np.float64)
    counts = np.ones((rows, experts), dtype=np.int64)
    largest = np.empty(experts)
    for row in range(rows):
        for expert in range(experts):
            largest[expert] = weights[row, expert]
            owner[row, expert] = expert
        for slot in range(experts, slots):
            expert = int(np.argmax(largest))
            owner[row, slot] = expert
            counts[row, expert] += 1
            largest[expert] = np.float64(weights[row, expert]) / counts[row, expert]
        for slot in range(slots):
            share[row, slot] = largest[owner[row, slot]]
    return owner, share, counts


@compiled
def pack(order: Array, share: Array, gpus: int) -> Array:
    """Return the slots of each GPU: each item of `order` goes to the lightest GPU with space."""
    rows, slots = share.shape
    per_gpu = slots // gpus
    packed = np.empty((rows, slots), dtype=np.int64)
    load = np.empty(gpus, share.dtype)
    used = np.empty(gpus, dtype=np.int64)
    for row in range(rows):
        load[:] = 0.0
        used[:] = 0
        for position in range(slots):
            slot = order[row, position]
            gpu = 0
            for other in range(1, gpus):
                if load[other] < load[gpu]:
                    gpu = other
            packed[row, gpu * per_gpu + used[gpu]] = slot
            used[gpu] += 1
            load[gpu] = np.inf if used[gpu] == per_gpu else load[gpu] + share[row, slot]
    return packed


@compiled
def _gpu_loads(weights: Array, held: Array, counts: Array) -> Array:
    load = np.zeros(held.shape[0])
    for gpu in range(held.shape[0]):
        for slot in range(held.shape[1]):
            load[gpu] += weights[held[gpu, slot]] / counts[held[gpu, slot]]
    return load


@compiled
def _has(held: Array, gpu: int, expert: int) -> bool:
    found = False
    for slot in range(held.shape[1]):
        found |= held[gpu, slot] == expert
    return found


@compiled
def _new_at(old: Array, gpu: int, expert: int) -> int:
    return 0 if old.shape[0] and _has(old, gpu, expert) else 1


@compiled
def _over(load: float, limit: float) -> float:
    return load - limit if load > limit else 0.0


@compiled
def _excess_after(
    weights: Array, held: Array, counts: Array, load: Array, limit: float, gpu: int, slot: int,
    added: int,
) -> float:  # fmt: skip
    """Return the sum over GPUs of the load above `limit` if `added` replaces a replica."""
    removed = held[gpu, slot]
    more = weights[added] / (counts[added] + 1) - weights[added] / counts[added]
    less = weights[removed] / (counts[removed] - 1) - weights[removed] / counts[removed]
    total = 0.0
    for other in range(held.shape[0]):
        now = load[other]
        for place in range(held.shape[1]):
            if other == gpu and place == slot:
                now += weights[added] / (counts[added] + 1) - weights[removed] / counts[removed]
            elif held[other, place] == added:
                now += more
            elif held[other, place] == removed:
                now += less
        total += _over(now, limit)
    return total


@compiled
def _most_saved(
    weights: Array, held: Array, counts: Array, load: Array, limit: float, expert: int
) -> float:
    """Return the most that one more replica of an expert takes from the loads above `limit`."""
    share = weights[expert] / counts[expert] - weights[expert] / (counts[expert] + 1)
    total = 0.0
    for gpu in range(held.shape[0]):
        for slot in range(held.shape[1]):
            if held[gpu, slot] == expert:
                total += min(share, _over(load[gpu], limit))
    return total


@compiled
def improve(weights: Array, held: Array, old: Array, limit: float, steps: int) -> float:
    """Move and replicate experts of the heaviest GPU until no GPU is above `limit`.

    A step exchanges two replicas, or puts one more replica of an expert in the place of another
    expert's spare one. With a placement `old`, it is the step that lowers the sum of the loads
    above `limit` most for each expert to fetch. With an empty `old`, exchanges come first, and each
    lowers the larger of the two loads most.
    `held` is changed in place. Returns the largest load.
    """
    gpus, per_gpu = held.shape
    counts = np.zeros(weights.shape[0], dtype=np.int64)
    for gpu in range(gpus):
        for slot in range(per_gpu):
            counts[held[gpu, slot]] += 1
    load = _gpu_loads(weights, held, counts)
    counted = old.shape[0] > 0
    for _ in range(steps):
        top = int(np.argmax(load))
        if load[top] <= limit:
            break
        excess = 0.0
        for gpu in range(gpus):
            excess += _over(load[gpu], limit)
        best = 0.0
        kind, a, b, c = 0, 0, 0, 0
        for slot in range(per_gpu):
            expert = held[top, slot]
            share = weights[expert] / counts[expert]
            for gpu in range(gpus):
                if gpu == top or _has(held, gpu, expert):
                    continue
                for place in range(per_gpu):
                    other = held[gpu, place]
                    delta = share - weights[other] / counts[other]
                    if delta <= 0 or load[gpu] + delta >= load[top]:
                        continue
                    if _has(held, top, other):
                        continue
                    gain = _over(load[top], limit) - _over(load[top] - delta, limit)
                    gain -= _over(load[gpu] + delta, limit) - _over(load[gpu], limit)
                    if not counted:
                        gain = load[top] - max(load[top] - delta, load[gpu] + delta)
                    cost = 1.0
                    if counted:
                        cost = _new_at(old, gpu, expert) + _new_at(old, top, other)
                        cost -= _new_at(old, top, expert) + _new_at(old, gpu, other)
                        cost = max(cost, 0.05)
                    if gain > best * cost and gain > 1e-12 * load[top]:
                        best, kind, a, b, c = gain / cost, 1, slot, gpu, place
        if kind == 0 or counted:
            for slot in range(per_gpu):
                expert = held[top, slot]
                most = _most_saved(weights, held, counts, load, limit, expert)
                if most * 20 <= best:
                    continue
                for gpu in range(gpus):
                    if gpu == top or _has(held, gpu, expert):
                        continue
                    for place in range(per_gpu):
                        other = held[gpu, place]
                        if counts[other] < 2 or other == expert:
                            continue
                        if (
                            load[gpu]
                            + weights[expert] / (counts[expert] + 1)
                            - weights[other] / counts[other]
                            >= load[top]
                        ):
                            continue
                        cost = 1.0
                        if counted:
                            cost = _new_at(old, gpu, expert) - _new_at(old, gpu, other)
                            cost = max(cost, 0.05)
                        if most <= best * cost:
                            continue
                        gain = excess - _excess_after(
                            weights, held, counts, load, limit, gpu, place, expert
                        )
                        if gain > best * cost and gain > 1e-9 * load[top]:
                            best, kind, a, b, c = gain / cost, 2, slot, gpu, place
        if kind == 0:
            break
        expert, other = held[top, a], held[b, c]
        held[b, c] = expert
        if kind == 1:
            held[top, a] = other
        else:
            counts[expert] += 1
            counts[other] -= 1
        load = _gpu_loads(weights, held, counts)
    return float(np.max(load))


@compiled
def _paired(weights: Array, counts: Array, slots: int) -> float:
    """Return the largest load of two slots per GPU, the largest share with the smallest."""
    share = np.empty(slots)
    at = 0
    for expert in range(weights.shape[0]):
        for _ in range(counts[expert]):
            share[at] = weights[expert] / counts[expert]
            at += 1
    share.sort()
    most = 0.0
    for slot in range(slots // 2):
        most = max(most, share[slot] + share[slots - 1 - slot])
    return most


@compiled
def better_counts(weights: Array, counts: Array, slots: int) -> None:
    """Take replicas from one expert for another while two slots per GPU get a lower maximum."""
    now = _paired(weights, counts, slots)
    improved = True
    while improved:
        improved = False
        least, given, taken = now, -1, -1
        for expert in range(weights.shape[0]):
            if weights[expert] / counts[expert] * 2 < now:
                continue
            for other in range(weights.shape[0]):
                if other == expert or counts[other] < 2:
                    continue
                if weights[other] / (counts[other] - 1) >= now:
                    continue
                counts[expert] += 1
                counts[other] -= 1
                found = _paired(weights, counts, slots)
                counts[expert] -= 1
                counts[other] += 1
                if found < least * (1 - 1e-12):
                    least, given, taken = found, expert, other
        if given >= 0:
            counts[given] += 1
            counts[taken] -= 1
            now, improved = least, True


@compiled
def halves_needed(weights: Array, counts: Array, limit: float, part: float, spare: int) -> int:
    """Return the least number of half GPUs that slots of at least `part` * `limit` fill.

    A slot above (1 - part) * limit fills a GPU, one of at least part * limit a half; of two slots
    that share a GPU within `limit`, that counts at most 1. `counts` are the fewest possible ones,
    and all ways to distribute `spare` slots over the experts are tried (a dynamic programme).
    """
    unreachable = 4 * (spare + counts.sum()) + 4
    least = np.full(spare + 1, unreachable)
    least[0] = 0
    for expert in range(weights.shape[0]):
        if weights[expert] / counts[expert] < part * limit:
            continue  # it fills nothing, and fills nothing with more replicas
        after = np.full(spare + 1, unreachable)
        for added in range(spare + 1):
            replicas = counts[expert] + added
            share = weights[expert] / replicas
            filled = 0
            if share > (1 - part) * limit:
                filled = 2 * replicas
            elif share >= part * limit:
                filled = replicas
            for used in range(spare + 1 - added):
                total = least[used] + filled
                if total < after[used + added]:
                    after[used + added] = total
            if filled == 0:
                break  # more replicas are of no use
        least = after
    return int(np.min(least))

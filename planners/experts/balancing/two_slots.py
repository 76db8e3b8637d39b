"""Two slots per GPU: the largest replica shares a GPU with the smallest, and so on.

No other pairing of given replicas has a lower maximum, so only the numbers of replicas are
searched. Many replicas of a small expert are of use: they leave room for the largest replicas.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import csr_array, hstack, vstack

from planners.experts.kernels import ROUNDING, Array, compiled, replicate
from planners.experts.problem import Loads, Slots, experts_on

_HALVINGS = 8
_MANY = 64
_CLOSE = 1e-4
_GAPS = (1e-3, 4e-3, 1.6e-2, 6.4e-2)
_PROVEN = 1e-6


@compiled
def _shares(weights: Array, counts: Array, slots: int) -> Array:
    """Return the shares of all slots in increasing order, 0 for slots that are left over."""
    share = np.zeros(slots)
    at = slots - counts.sum()
    for expert in range(weights.shape[0]):
        share[at : at + counts[expert]] = weights[expert] / counts[expert]
        at += counts[expert]
    share.sort()
    return share


@compiled
def _fold(share: Array, limit: float) -> tuple[float, float]:
    """Return the sum of the loads of pairs above `limit`, and the largest load of a pair."""
    above, largest = 0.0, 0.0
    for slot in range(share.shape[0] // 2):
        load = share[slot] + share[share.shape[0] - 1 - slot]
        above += max(load - limit, 0.0)
        largest = max(largest, load)
    return above, largest


@compiled
def _above_after(share: Array, weight: float, count: int, change: int, limit: float) -> float:
    """Return the sum of loads above `limit` after `change` more replicas of an expert.

    `share` has the shares of all slots in increasing order, 0 for an empty one.
    """
    slots = share.shape[0]
    # 1. The shares of all others; empty slots at the beginning come or go.
    end = 0
    while end < slots and share[end] <= weight / count:
        end += 1
    others = np.zeros(slots - count - change)
    others[max(-change, 0) : end - count - change] = share[max(change, 0) : end - count]
    others[end - count - change :] = share[end:]
    # 2. The new shares, in order among them.
    added, at = weight / (count + change), 0
    while at < others.shape[0] and others[at] < added:
        at += 1
    after = np.full(slots, added)
    after[:at] = others[:at]
    after[at + count + change :] = others[at:]
    return _fold(after, limit)[0]


@compiled
def _best_change(
    weights: Array, counts: Array, least: Array, slots: int, limit: float, change: int,
    above: float = 0.0,
) -> tuple[float, int]:  # fmt: skip
    """Return the least sum above `limit` after a change of one expert's replicas, and the expert.

    The sum is infinite if there is none. Shares from a fifth of the limit to `above` of it are left
    out.
    """
    share = _shares(weights, counts, slots)
    best, chosen = np.inf, 0
    for expert in range(weights.shape[0]):
        now = weights[expert] / counts[expert] / limit
        if counts[expert] + change < least[expert] or 0.2 < now < above:
            continue
        above_limit = _above_after(share, weights[expert], counts[expert], change, limit)
        if above_limit < best:
            best, chosen = above_limit, expert
    return best, chosen


@compiled
def fit_counts(weights: Array, counts: Array, slots: int, limit: float) -> tuple[bool, int]:
    """Change `counts` until two slots per GPU hold all replicas within `limit`, a few at a time.

    Empty slots first go to the experts that lower the loads above `limit` most. When none is above
    it, one expert with a small load fills them. Without empty slots, the replica that is needed
    least is taken away again. Returns whether the limit is reached, and the number of changes.
    """
    least = np.maximum(np.ceil(weights / limit * (1 - ROUNDING)), 1).astype(np.int64)
    counts[:] = np.maximum(counts, least)
    changes = 0
    while counts.sum() > slots:
        smallest = np.where(counts > least, weights / np.maximum(counts - 1, 1), np.inf)
        if smallest.min() == np.inf:
            return False, changes
        counts[np.argmin(smallest)] -= 1
        changes += 1
    now, _ = _fold(_shares(weights, counts, slots), limit)
    enough = ROUNDING * limit
    while True:
        empty = slots - counts.sum()
        if now <= enough:
            if empty == 0:
                return True, changes
            filled, expert = _best_change(weights, counts, least, slots, limit, empty)
            if filled <= enough:
                counts[expert] += empty
                return True, changes + 1
        if empty == 0:
            after, removed = _best_change(weights, counts, least, slots, limit, -1)
            if after == np.inf:
                return False, changes
            counts[removed] -= 1
        # With many slots, halves of other replicas hardly help, and are left out for time.
        above = 0.7 if slots > _MANY else 0.0
        left, expert = _best_change(weights, counts, least, slots, limit, 1, above)
        if left == np.inf or (left >= now and (empty == 0 or now > enough)):
            return False, changes
        counts[expert] += 1
        now = left
        changes += 1


def least_pairs(weights: Loads, counts: Slots, gpus: int, low: float) -> tuple[Slots, float]:
    """Return the numbers of replicas with the least largest load of a pair, and that load.

    The search starts from `counts`, and does not look for less than `low`.
    """
    high = _fold(_shares(weights, counts, 2 * gpus), low)[1]
    for _ in range(_HALVINGS):
        if high <= low * (1 + _CLOSE):
            break
        limit = (low + high) / 2
        fitted = np.ones_like(counts)
        if fit_counts(weights, fitted, 2 * gpus, limit)[0]:
            counts, high = fitted, min(high, _fold(_shares(weights, fitted, 2 * gpus), low)[1])
        else:
            low = limit
    return counts, high


def paired(weights: Loads, counts: Slots) -> Slots:
    """Return GPUs x 2: the largest replicas with the smallest."""
    ordered = np.argsort(-weights / counts, kind="stable")
    large, small = np.split(np.repeat(ordered, counts[ordered]), 2)
    return np.stack((large, small[::-1]), axis=1)


def paired_near(weights: Loads, start: Slots, old: Slots, limit: float) -> Slots:
    """Return a placement of the experts of `start` that fetches few which are not in `old`.

    It is within `limit` if numbers of replicas are found that make this possible.
    """
    # 1. The numbers of replicas change as little as possible, or else are searched anew.
    names, placed = np.unique(start, return_inverse=True)
    placed = placed.reshape(start.shape)
    weights, is_old = weights[names], experts_on(old, len(weights))[:, names]
    for counts in (np.bincount(placed.ravel()), np.ones_like(names)):
        if fit_counts(weights, counts, start.size, limit)[0]:
            break
    else:
        return start
    # 2. Each new replica takes the place of one that is gone.
    share, most = weights / counts, limit * (1 + ROUNDING)
    placed = _recounted(placed, counts, share)
    for _ in range(2):
        # 3. The smaller replicas of all GPUs are assigned to them again, with the fewest GPUs above
        # the limit and then with the fewest fetches.
        large, small = np.take_along_axis(placed, np.argsort(-share[placed], axis=1), axis=1).T
        above = share[small] + share[large][:, None] > most
        small = small[linear_sum_assignment(~is_old[:, small] + len(old) * above)[1]]
        placed = np.stack((large, small), axis=1)
        if share[placed].sum(axis=1).max() <= most:
            break
        # 4. If that fails, pairs within the limit are kept, whichever GPU has which pair.
        placed = paired(weights, counts)
        placed = placed[linear_sum_assignment(~is_old[:, placed[:, 0]])[1]]
    return names[placed]


def _recounted(old: Slots, counts: Slots, share: Loads) -> Slots:
    """Return the placement with other numbers of replicas.

    The heaviest GPU gives up a replica first, and the lightest slot gets the largest new one.
    """
    placed = old.copy()
    change = counts - np.bincount(old.ravel(), minlength=len(counts))
    load = share[old].sum(axis=1)
    free = []
    for expert in np.repeat(np.arange(len(counts)), np.maximum(-change, 0)):
        gpu, slot = max(np.argwhere(placed == expert).tolist(), key=lambda at: load[at[0]])
        placed[gpu, slot] = -1
        load[gpu] -= share[expert]
        free.append((gpu, slot))
    added = np.repeat(np.arange(len(counts)), np.maximum(change, 0))
    free.sort(key=lambda at: load[at[0]])
    for at, expert in zip(free, added[np.argsort(-share[added])], strict=True):
        placed[at] = expert
    return placed


def pairs_bound(weights: Loads, gpus: int, low: float) -> float:
    """Return a bound on the largest load of two slots per GPU, at least `low`."""
    _, _, counts = replicate(weights[None], 2 * gpus)
    _, high = least_pairs(weights, counts[0], gpus, low)
    for gap in _GAPS:
        limit = high / (1 + gap)
        if limit <= low:
            break
        if _is_impossible(weights / limit, 2 * gpus):
            return limit
    return low


def _is_impossible(weights: Loads, slots: int) -> bool:
    """Return whether a linear programme proves that no pairs have loads up to 1.

    If all pairs are within 1, the replicas of at least x, for any x above a half, have partners of
    at most 1 - x: there are no more of the former than of the latter. Columns are numbers of
    replicas of an expert, added while they lower the largest surplus. The proof needs only the
    prices of the thresholds x and of a slot: a positive dual value for all numbers of replicas.
    """
    least = np.maximum(np.ceil(weights * (1 - ROUNDING)), 1).astype(np.int64)
    spare = slots - int(least.sum())
    if spare < 0:
        return True
    choices = least[:, None] + np.arange(spare + 1)
    share = weights[:, None] / choices
    limits = np.unique(share[:, :2][share[:, :2] > 0.5])
    used = np.tile(np.arange(spare + 1) < 2, (len(weights), 1))
    while True:
        expert, column = np.nonzero(used)
        count, size = choices[expert, column], share[expert, column]
        surplus = count * (
            (size >= limits[:, None]) * 1.0 - (size <= 1 - limits[:, None] + ROUNDING)
        )
        rows = csr_array((np.ones(len(expert)), (expert, np.arange(len(expert)))))
        solved = linprog(
            np.append(np.zeros(len(expert)), 1.0),
            A_ub=np.column_stack((surplus, -np.ones(len(limits)))),
            b_ub=np.zeros(len(limits)),
            A_eq=hstack((vstack((rows, csr_array(count[None]))), csr_array((len(weights) + 1, 1)))),
            b_eq=np.append(np.ones(len(weights)), slots),
            bounds=(0, None),
        )
        if solved.status != 0:
            return False
        price = np.append(0.0, np.cumsum(np.maximum(-solved.ineqlin.marginals, 0.0)))
        slot = float(solved.eqlin.marginals[-1])
        large = price[np.searchsorted(limits, share, "right")]
        small = price[np.searchsorted(limits, 1 - share + ROUNDING, "right")]
        cost = choices * (large - small - slot)
        if cost.min(axis=1).sum() + slot * slots > _PROVEN:
            return True
        best = cost.argmin(axis=1)
        fresh = ~used[np.arange(len(weights)), best]
        if solved.fun < _PROVEN or not fresh.any():
            return False
        used[np.flatnonzero(fresh), best[fresh]] = True

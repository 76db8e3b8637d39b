"""The exact search for small problems: finds an optimal plan and proves it, if the work suffices.

Branch and bound decides whether any plan with a rating below z exists. If none exists just below
the best plan's rating, that plan is proven optimal. If this takes too long, lower values of z are
tried, and each one that is proven impossible is a lower bound.
"""

import math
from itertools import product

import numpy as np

from planners.embedding.best_plan.bounds.presolve import Presolve
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.exact.branching import ANY, EXHAUSTED, FITS, STOPPED, search
from planners.embedding.best_plan.exact.fitting import Layout, Stack
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints, Placement

NO_BETTER = 1e-10
"""Plans within this part of each other count as equally good."""

_UNITS = 2.0**47  # units of time per rating z, so that sums of 64 shards and more are below 2**63
_AT_ONCE = 4_000_000  # work between two checks of the deadline
_PARTS_OF_PRICE = 16  # prices are multiples of 1/16, a grid of 153
_NARROW = 1e-3  # smaller gaps are not bisected
# Parts of the work: to prove the best plan optimal, then for each of six lower ratings; the rest is
# for the first again.
_FIRST, _BETWEEN, _BISECTIONS = 0.3, 0.06, 6

_SINGLE = (Placement.DEVICE, Placement.HOST_COLUMNS)  # shards go onto devices one by one


class ExactSearch:
    """Searches for a plan better than the best known one, or for a proof that none exists.

    `least` is a proven lower bound on all ratings, and `rating` the best known one. `plan` contains
    the options and the ranks of their shards if this search found the best known plan, else None.
    """

    def __init__(self, found: Candidates) -> None:
        self._found = found
        self._presolve = Presolve(found)
        self._question: _Question | None = None
        self._left = 0
        self.least, self.rating = 0.0, math.inf
        self.plan: tuple[Ints, Ints] | None = None

    @property
    def proven(self) -> bool:
        """Whether it is proven that no plan is better than the best known, or that none exists."""
        return self.least >= self.rating * (1 - 2 * NO_BETTER)

    def run(self, least: float, rating: float, work: int, deadline: Deadline) -> None:
        """Search until the best plan is proven optimal or `work` is done; a later run continues.

        `least` and `rating` are the bound and the best rating known now.
        """
        self._left = work
        self.least = max(self.least, least)
        if rating < self.rating:
            self.rating, self.plan = rating, None
        self._ask_below_best(int(_FIRST * work), deadline)
        low, high = self.least, self.rating
        if not math.isfinite(high):
            high = low
        for _ in range(_BISECTIONS):
            if self.proven or high <= low * (1 + _NARROW):
                break
            middle = (low + high) / 2
            answer = self._ask(self._about(middle), int(_BETWEEN * work), deadline)
            if answer == EXHAUSTED:
                low = self.least = middle
            else:
                high = min(self.rating, middle)
        self._ask_below_best(work, deadline)

    def _ask_below_best(self, work: int, deadline: Deadline) -> None:
        """Search for better plans until none exists, or the work or the time has run out."""
        while not self.proven and self._left > 0 and not deadline.passed:
            limit = self.rating * (1 - NO_BETTER)
            if self._question is None or self._question.limit != limit:
                self._question = self._about(limit)
            answer = self._ask(self._question, work, deadline)
            if answer == EXHAUSTED:
                self.least = limit
            if answer == STOPPED:
                break

    def _about(self, limit: float) -> "_Question":
        """Return a search for a plan that rates `limit` or less, among options presolve leaves."""
        refuted, possible = self._presolve.refuted(limit, Deadline())
        return _Question(None if refuted else self._found.only(possible), limit)

    def _ask(self, question: "_Question", work: int, deadline: Deadline) -> int:
        answer = STOPPED
        while answer == STOPPED and min(work, self._left) > 0 and not deadline.passed:
            answer, done = question.go_on(min(work, self._left, _AT_ONCE))
            work -= done
            self._left -= done
        if answer == FITS:
            options, ranks = question.plan()
            rating = self._found.rate(options, ranks)
            if rating < self.rating:
                self.rating, self.plan = rating, (options, ranks)
        return answer


class _Question:
    """Decides whether a plan of `found` rates `limit` or less; if `found` is None, no plan does."""

    def __init__(self, found: Candidates | None, limit: float) -> None:
        self.limit = limit
        self._found = found
        if found is not None:
            shards = [found.space.estimates_of(option) for option in found.options.tolist()]
            placements = found.space.placement[found.options].tolist()
            self._orders = list(map(_order, [found] * len(shards), shards, placements))
            ordered = [own[order] for own, order in zip(shards, self._orders, strict=True)]
            self._layout = _layout(found, ordered, limit)
            self._stack = _stack(self._layout)
            search(self._layout, self._stack, True, 0)

    def go_on(self, work: int) -> tuple[int, int]:
        """Continue the search for `work`; return EXHAUSTED, STOPPED or FITS, and the work done."""
        if self._found is None:
            return EXHAUSTED, 0
        before = int(self._stack.figures[1])
        answer = search(self._layout, self._stack, False, work)
        return int(answer), int(self._stack.figures[1]) - before + 1

    def plan(self) -> tuple[Ints, Ints]:
        """Return the found plan: the option of each table, and the rank of each of their shards."""
        assert self._found is not None
        size, ranks = self._layout.host_ranks, []
        for option, where in zip(self._stack.chosen.tolist(), self._stack.where, strict=True):
            order, placement = self._orders[option], self._layout.placement[option]
            count = len(order)
            on = np.arange(count)
            if placement in _SINGLE:
                on[order] = where[:count]
            elif placement != Placement.UNIFORM:
                on = np.repeat(where[: count // size] * size, size) + on % size
            ranks.append(on)
        return self._found.options[self._stack.chosen], np.concatenate(ranks)


def _order(found: Candidates, estimates: Ints, placement: int) -> Ints:
    """Return the order in which to place an option's shards: on single devices, largest first."""
    if placement not in _SINGLE:
        return np.arange(len(estimates))
    space = found.space
    figures = (-space.storage[estimates, 1], -space.storage[estimates, 0], -space.total[estimates])
    return np.lexsort(figures)


def _layout(found: Candidates, shards: list[Ints], limit: float) -> Layout:
    """Return the candidates as arrays for the search for a plan that rates `limit` or less."""
    space, devices = found.space, found.devices
    most = limit if math.isfinite(limit) else float(space.option_perf[found.options].sum()) or 1.0
    unit = most / _UNITS
    need = np.empty((len(space.storage), 3), np.int64)
    need[:, 0] = np.minimum(space.total / unit, 2 * _UNITS)
    need[:, 1:] = space.storage[:, :2]
    capacity = np.empty((devices.ranks, 3), np.int64)
    capacity[:, 0] = int(most * (1 + 1e-12) / unit)
    capacity[:, 1:] = devices.storage[:, :2]
    placement = space.placement[found.options]
    counts = np.array(list(map(len, shards)), np.int64)
    shard = np.concatenate([[0], np.cumsum(counts)])
    begin = shard[:-1]
    estimate = _same_numbers(found, np.concatenate(shards))
    whole_options = (placement == Placement.UNIFORM) | (placement == Placement.HOST_ROWS)
    blocks = placement == Placement.HOSTS
    needed = need[estimate]
    used = np.add.reduceat(needed, begin).astype(np.float64)
    largest = np.maximum.reduceat(needed[:, 0], begin)
    whole = np.maximum(capacity.sum(axis=0), 1).astype(np.float64)
    weight = _weights(found, used / whole, largest <= capacity[0, 0]) / whole
    priced = needed.astype(np.float64) @ weight.T  # shape (shards, P)
    density = np.empty((len(weight), len(used), 3))
    for kind in range(3):
        with np.errstate(divide="ignore", invalid="ignore"):
            of_kind = priced / needed[:, kind : kind + 1]
        of_kind[needed[:, kind] == 0] = ANY
        density[:, :, kind] = np.maximum.reduceat(of_kind, begin).T
    size = (needed / np.maximum(capacity.max(axis=0), 1)).max(axis=1)
    on_hosts = bool((~np.isin(placement, (Placement.UNIFORM, Placement.DEVICE))).any())
    return Layout(
        first=found.first,
        placement=placement,
        parts=np.select([whole_options, blocks], [1, counts // devices.host_ranks], counts),
        shard=shard,
        estimate=estimate,
        need=need,
        largest=largest,
        size=np.maximum.reduceat(size, begin),
        price=np.ascontiguousarray((used @ weight.T).T),
        weight=weight,
        density=density,
        label=_labels(found, placement, np.split(estimate, begin[1:]), on_hosts),
        capacity=capacity,
        host_ranks=devices.host_ranks,
        on_hosts=on_hosts,
    )


def _same_numbers(found: Candidates, estimates: Ints) -> Ints:
    """Return the estimate numbers, with one number for all equal milliseconds and bytes."""
    figures = np.column_stack([found.space.total, found.space.storage])
    _, number = np.unique(figures, axis=0, return_inverse=True)
    _, first = np.unique(number, return_index=True)
    return np.asarray(first[number.ravel()][estimates], np.int64)


def _labels(found: Candidates, placement: Ints, shards: list[Ints], on_hosts: bool) -> Ints:
    """Return a label per rank; ranks with equal labels have equal memory and get equal shards."""
    devices = found.devices
    seen: dict[tuple[int, ...], int] = {}
    labels = []
    for rank in range(devices.ranks):
        on_host = rank < devices.hosts * devices.host_ranks
        label = [*devices.storage[rank].tolist(), int(on_host or not on_hosts)]
        for estimates, place in zip(shards, placement.tolist(), strict=True):
            if place == Placement.UNIFORM:
                label.append(int(estimates[rank]))
            elif place not in _SINGLE:
                label += estimates[rank % devices.host_ranks :: devices.host_ranks].tolist()
        labels.append(seen.setdefault(tuple(label), len(seen)))
    return np.array(labels, np.int64)


def _weights(found: Candidates, used: Floats, allowed: Ints) -> Floats:
    """Return vectors of prices for all time, HBM and DDR, shape (P, 3); each vector sums to 1.

    They are Lagrangian multipliers from a grid: the vector at which the tables cost most, the same
    with each kind's price at 0, and each kind alone.
    """
    steps = range(_PARTS_OF_PRICE + 1)
    grid = np.array(
        [
            (one, other, _PARTS_OF_PRICE - one - other)
            for one, other in product(steps, steps)
            if one + other <= _PARTS_OF_PRICE
        ]
    )
    priced = np.where(allowed[:, None], used @ (grid.T / _PARTS_OF_PRICE), np.inf)
    least = np.minimum.reduceat(priced, found.first[:-1]).sum(axis=0)
    chosen = [int(least.argmax())]
    for kind in range(3):
        chosen.append(int(np.where(grid[:, kind] == 0, least, -1.0).argmax()))
        chosen.append(int(np.flatnonzero(grid[:, kind] == _PARTS_OF_PRICE)[0]))
    return np.asarray(grid[list(dict.fromkeys(chosen))] / _PARTS_OF_PRICE)


def _stack(layout: Layout) -> Stack:
    tables, ranks = len(layout.first) - 1, len(layout.capacity)
    parts = int(layout.parts.max())
    most = np.maximum.reduceat(layout.parts, layout.first[:-1])
    frames = int(most.sum()) + tables + 1
    choices = max(int(np.diff(layout.first).max()), ranks)
    return Stack(
        left=layout.capacity.copy(),
        open=np.ones(tables, np.bool_),
        chosen=np.full(tables, -1, np.int64),
        where=np.full((tables, parts), -1, np.int64),
        table=np.zeros(frames, np.int64),
        part=np.zeros(frames, np.int64),
        next=np.zeros(frames, np.int64),
        choice_count=np.zeros(frames, np.int64),
        at=np.full(frames, -1, np.int64),
        choices=np.zeros((frames, choices), np.int64),
        barred=np.zeros(frames, np.int64),
        alike=np.zeros((frames, ranks), np.int64),
        figures=np.zeros(2, np.int64),
        priced=np.zeros(2 * len(layout.weight)),
        dense=np.zeros((len(layout.weight), 3)),
    )

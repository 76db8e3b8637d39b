"""The exact search, for small problems: down to a plan that is proven best, as far as work goes.

Whether a plan rates less than z is a question of what fits, which branch and bound answers. Asked
just below the best plan it proves that plan best; where that takes too long, lower z are asked, and
each that is impossible is a lower bound.
"""

import math
from itertools import product

import numpy as np

from planners.embedding.best_plan.bounds.presolve import Presolve
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.exact.branching import (
    ANY,
    EXHAUSTED,
    FITS,
    STOPPED,
    search,
)
from planners.embedding.best_plan.exact.layout import Layout, Stack
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints, Placement

NO_BETTER = 1e-10
"""Plans that are better by less than this part are not told apart."""

_UNITS = 2.0**47  # of time in what is asked for; it is rounded down to them
_MOST_RANKS, _MOST_TABLES, _MOST_SHARDS = 32, 40, 6000
_AT_ONCE = 4_000_000  # work after which the clock is looked at
_PARTS_OF_PRICE = 16
_NARROW = 1e-3
_FIRST, _BETWEEN, _BISECTIONS = 0.3, 0.06, 6  # of the work: at first, and for each z between


def worth_exact(found: Candidates) -> bool:
    """Whether a problem is small enough for an exact search to prove something."""
    shards = np.diff(found.space.first_shard)[found.options]
    return bool(
        found.devices.ranks <= _MOST_RANKS
        and found.space.tables <= _MOST_TABLES
        and shards.sum() <= _MOST_SHARDS
    )


class ExactSearch:
    """Searches for plans that rate less than the best one known, and for the proof of none.

    `least` is proven: no plan rates less. `plan` has the options and the ranks of their shards,
    one after the other, of a plan that rates `rating`, where one was found.
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
        """Whether no plan is better than the best known, or there is none."""
        return self.least >= self.rating * (1 - 2 * NO_BETTER)

    def run(self, least: float, rating: float, work: int, deadline: Deadline) -> None:
        """Search until the best plan is proven, or the work is done; go on where it was left."""
        self._left = work
        self.least = max(self.least, least)
        if rating < self.rating:  # somebody has found a better plan than the one here
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
        """Ask for plans that are better than the best one until there is none."""
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
        """Return the question whether a plan rates no more, of the options that one can have."""
        refuted, possible = self._presolve.refuted(limit, Deadline())
        shape = _Shape(self._found.only(possible)) if not refuted else None
        return _Question(shape, limit)

    def _ask(self, question: "_Question", work: int, deadline: Deadline) -> int:
        answer = STOPPED
        while answer == STOPPED and min(work, self._left) > 0 and not deadline.passed:
            answer, done = question.go_on(min(work, self._left, _AT_ONCE))
            work -= done
            self._left -= done
        if answer == FITS:
            options, ranks = question.plan()
            rating = self._rated(options, ranks)
            if rating < self.rating:
                self.rating, self.plan = rating, (options, ranks)
        return answer

    def _rated(self, options: Ints, ranks: Ints) -> float:
        """Rate a plan shard after shard, as torchrec does."""
        space = self._found.space
        perf = np.zeros(self._found.devices.ranks)
        shards = [space.estimates_of(option) for option in options.tolist()]
        np.add.at(perf, ranks, space.total[np.concatenate(shards)])
        return float(perf.max())


class _Shape:
    """What of a layout does not depend on what is asked."""

    def __init__(self, found: Candidates) -> None:
        space = found.space
        self.found = found
        self.placement = space.placement[found.options]
        shards = [space.estimates_of(option) for option in found.options.tolist()]
        self.order = [
            _order(found, estimates, place)
            for estimates, place in zip(shards, self.placement.tolist(), strict=True)
        ]
        self.shards = [
            estimates[order] for estimates, order in zip(shards, self.order, strict=True)
        ]
        counts = np.array([len(each) for each in shards], np.int64)
        host_ranks = found.devices.host_ranks
        self.parts = np.select(
            [
                (self.placement == Placement.UNIFORM) | (self.placement == Placement.HOST_ROWS),
                self.placement == Placement.HOSTS,
            ],
            [1, counts // host_ranks],
            counts,
        )
        self.shard = np.concatenate([[0], np.cumsum(counts)])
        self.estimate = _same_numbers(found, np.concatenate(self.shards))
        self.on_hosts = bool(
            np.isin(
                self.placement, (Placement.HOST_ROWS, Placement.HOST_COLUMNS, Placement.HOSTS)
            ).any()
        )
        self.label = self._labels()

    def _labels(self) -> Ints:
        devices = self.found.devices
        seen: dict[tuple[int, ...], int] = {}
        labels = []
        for rank in range(devices.ranks):
            on_host = rank < devices.hosts * devices.host_ranks
            label = [*devices.storage[rank].tolist(), int(on_host or not self.on_hosts)]
            for option, place in enumerate(self.placement.tolist()):
                estimates = self.estimate[self.shard[option] : self.shard[option + 1]]
                if place == Placement.UNIFORM:
                    label.append(int(estimates[rank]))
                elif place in (Placement.HOST_ROWS, Placement.HOSTS):
                    label += estimates[rank % devices.host_ranks :: devices.host_ranks].tolist()
            labels.append(seen.setdefault(tuple(label), len(seen)))
        return np.array(labels, np.int64)


def _order(found: Candidates, estimates: Ints, placement: int) -> Ints:
    """Return in which order shards are placed: on single devices the largest first."""
    if placement not in (Placement.DEVICE, Placement.HOST_COLUMNS):
        return np.arange(len(estimates))
    space = found.space
    figures = (-space.storage[estimates, 1], -space.storage[estimates, 0], -space.total[estimates])
    return np.lexsort(figures)


def _same_numbers(found: Candidates, estimates: Ints) -> Ints:
    """Return the same number for equal estimates."""
    figures = np.column_stack([found.space.total, found.space.storage])
    _, number = np.unique(figures, axis=0, return_inverse=True)
    _, first = np.unique(number, return_index=True)
    return np.asarray(first[number.ravel()][estimates], np.int64)


class _Question:
    """Whether a plan rates no more than a limit; without a shape it is known that none does."""

    def __init__(self, shape: _Shape | None, limit: float) -> None:
        self.limit = limit
        self._shape = shape
        if shape is None:
            return
        self._layout = _layout(shape, limit)
        self._stack = _stack(self._layout)
        search(self._layout, self._stack, True, 0)

    def go_on(self, work: int) -> tuple[int, int]:
        """Search for so much work; returns how it ended, and the work done."""
        if self._shape is None:
            return EXHAUSTED, 0
        before = int(self._stack.figures[1])
        answer = search(self._layout, self._stack, False, work)
        return int(answer), int(self._stack.figures[1]) - before + 1

    def plan(self) -> tuple[Ints, Ints]:
        """Return the options and ranks of the plan that was found."""
        shape, size = self._shape, self._layout.host_ranks
        assert shape is not None
        ranks = []
        for table, option in enumerate(self._stack.chosen.tolist()):
            where = self._stack.where[table]
            count = len(shape.shards[option])
            on = np.zeros(count, np.int64)
            if shape.placement[option] == Placement.UNIFORM:
                on[:] = np.arange(count)
            elif shape.placement[option] in (Placement.DEVICE, Placement.HOST_COLUMNS):
                on[shape.order[option]] = where[:count]
            else:
                on[:] = np.repeat(where[: count // size] * size, size)
                on += np.tile(np.arange(size), count // size)
            ranks.append(on)
        return shape.found.options[self._stack.chosen], np.concatenate(ranks)


def _layout(shape: _Shape, limit: float) -> Layout:
    found = shape.found
    space, devices = found.space, found.devices
    dearest = limit
    if not math.isfinite(limit):
        dearest = float(space.option_perf[found.options].sum()) or 1.0
    unit = dearest / _UNITS
    need = np.empty((len(space.storage), 3), np.int64)
    need[:, 0] = np.minimum(space.total / unit, 2 * _UNITS)
    need[:, 1:] = space.storage[:, :2]
    capacity = np.empty((devices.ranks, 3), np.int64)
    capacity[:, 0] = int(dearest * (1 + 1e-12) / unit)
    capacity[:, 1:] = devices.storage[:, :2]
    of_shards = need[shape.estimate]
    used = np.add.reduceat(of_shards, shape.shard[:-1]).astype(np.float64)
    largest = np.maximum.reduceat(of_shards[:, 0], shape.shard[:-1])
    whole = np.maximum(capacity.sum(axis=0), 1).astype(np.float64)
    weight = _weights(found, used / whole, largest <= capacity[0, 0]) / whole
    priced = of_shards.astype(np.float64) @ weight.T  # shape (shards, P)
    density = np.empty((len(weight), len(used), 3))
    for kind in range(3):
        with np.errstate(divide="ignore", invalid="ignore"):
            each = priced / of_shards[:, kind : kind + 1]
        each[of_shards[:, kind] == 0] = ANY
        density[:, :, kind] = np.maximum.reduceat(each, shape.shard[:-1]).T
    return Layout(
        first=found.first,
        placement=shape.placement,
        parts=shape.parts,
        shard=shape.shard,
        estimate=shape.estimate,
        need=need,
        largest=largest,
        size=np.maximum.reduceat(
            (of_shards / np.maximum(capacity.max(axis=0), 1)).max(axis=1), shape.shard[:-1]
        ),
        price=np.ascontiguousarray((used @ weight.T).T),
        weight=weight,
        density=density,
        label=shape.label,
        capacity=capacity,
        host_ranks=devices.host_ranks,
        on_hosts=shape.on_hosts,
    )


def _weights(found: Candidates, used: Floats, allowed: Ints) -> Floats:
    """Return prices at which the tables are dear, as parts of all time and of all memory."""
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

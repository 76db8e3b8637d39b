"""Plans near a previous one: within the move budget, above the bound, no worse with more budget."""

import ctypes
import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from certified import JumpingClock
from hypothesis import given, settings, strategies as st
from small_problems import (
    KINDS,
    devices,
    fit,
    held_by,
    load,
    option,
    options_with_ranks,
    problems,
    varied,
    ways,
)

from planners.embedding.best_plan.linear import near_bound, with_previous
from planners.embedding.best_plan.replanning import Replanning
from planners.embedding.best_plan.rounds import SAMPLE
from planners.embedding.best_plan.search import best_plan
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import search_space

LAST_BITS = 1e-12


class Brief(Deadline):
    """A deadline with a little work but unlimited time, since solvers use clocks of their own."""

    def __init__(self, seconds: float | None = 0.002, clock=lambda: 0.0) -> None:
        super().__init__(seconds, clock)

    left = math.inf

    def after(self, part: float) -> "Brief":
        return Brief(part * self.seconds)


@dataclass
class Case:
    """A problem, the ranks of the previous plan's options (`before`), and each shard's bytes."""

    space: object
    devices: object
    before: dict
    weight: dict

    def moves(self, options, _ranks=0):
        homes, weights = [], []
        for each in options:
            count = len(each.shards)
            homes += self.before.get(id(each), (-1,) * count)
            weights += self.weight[id(each)]
        return Moves(np.array(homes, np.int64), np.array(weights, np.int64))

    def plans(self):
        """Yield the rating, the bytes moved and the placement of every plan that fits."""
        space, moves = self.space, self.moves(self.space.options)
        choices = [
            [
                (number, ranks)
                for number in np.flatnonzero(space.table == table).tolist()
                for ranks in ways(space, self.devices, number)
            ]
            for table in range(space.tables)
        ]
        if math.prod(map(len, choices)) > 1_000:
            return
        for plan in product(*choices):
            loads = sum(load(space, self.devices, *each) for each in plan)
            if fit(loads, self.devices):
                yield float(loads[:, 0].max()), moved(space, moves, plan), plan

    def search(self, seed=0):
        return Replanning(self.space, self.devices, self.moves, Brief(), seed)


def moved(space, moves, plan):
    """Return the number of bytes that a plan moves, summed over its shards."""
    return sum(
        int(moves.weight[space.first_shard[number] + index])
        for number, ranks in plan
        for index, rank in enumerate(ranks)
        if moves.home[space.first_shard[number] + index] != rank
    )


@st.composite
def cases(draw):
    space, placed_on = draw(
        problems(kinds=tuple(KINDS)[:5], overfull=False).filter(lambda each: each[1].hosts > 0)
    )
    before, weight = {}, {}
    for table in range(space.tables):
        numbers = np.flatnonzero(space.table == table).tolist()
        size = draw(st.integers(0, 5))
        for number in numbers:
            count = len(space.options[number].shards)
            weight[id(space.options[number])] = [size] * count
        was = draw(st.sampled_from([None, *numbers, *numbers]))
        if was is not None and (possible := ways(space, placed_on, was)):
            before[id(space.options[was])] = draw(st.sampled_from(possible))
    return Case(space, placed_on, before, weight)


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(0, 12))
def test_a_plan_within_the_budget_is_found_and_the_bound_is_below_all_that_are(case, budget):
    plans = list(case.plans())
    near = case.search().search(budget)
    if any(bytes_moved <= budget for _, bytes_moved, _ in plans):
        assert isinstance(near, Found)
        assert near.moved <= budget
    if not isinstance(near, Found):
        return
    plan = near.options, near.ranks
    assert fit(held_by(case.space, case.devices, *plan), case.devices)
    placed = options_with_ranks(case.space, *plan)
    assert near.moved == moved(case.space, case.moves(case.space.options), placed)
    assert near.rating >= near.bound * (1 - LAST_BITS)
    if plans:
        allowed = max(budget, near.moved)
        best = min(rating for rating, bytes_moved, _ in plans if bytes_moved <= allowed)
        assert near.bound * (1 - LAST_BITS) <= best <= near.rating * (1 + LAST_BITS)


@settings(max_examples=12, deadline=None)
@given(cases(), st.integers(0, 3))
def test_more_budget_is_never_worse_and_all_of_it_is_as_good_as_none(case, seed):
    search = case.search(seed)
    unlimited = best_plan(case.space, case.devices, Brief(), seed)
    last = math.inf
    for budget in (0, 1, 3, 10, search.everything, math.inf):
        near = search.search(budget)
        if isinstance(near, Found) and near.moved <= budget:
            assert near.rating <= last
            last = near.rating
    if isinstance(unlimited, Found):
        assert last <= unlimited.rating * (1 + LAST_BITS)


@settings(max_examples=12, deadline=None)
@given(cases(), st.integers(0, 12), st.integers(0, 3))
def test_the_same_seed_gives_the_same_plan(case, budget, seed):
    one, other = (case.search(seed).search(budget) for _ in range(2))
    if isinstance(one, Found):
        assert one.bound == other.bound
        assert (one.options == other.options).all()
        assert (one.ranks == other.ranks).all()
    assert type(one) is type(other)


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 20), st.integers(0, 9))
def test_on_many_ranks_a_plan_within_the_budget_is_no_worse_than_the_previous_plan(tables, budget):
    space, placed_on = varied(tables, hosts=SAMPLE // 2)
    first = best_plan(space, placed_on, Brief())
    previous = options_with_ranks(space, first.options, first.ranks)
    before = {id(space.options[number]): ranks for number, ranks in previous}
    weight = {id(each): [1] * len(each.shards) for each in space.options}
    near = Case(space, placed_on, before, weight).search().search(budget)
    assert fit(held_by(space, placed_on, near.options, near.ranks), placed_on)
    assert near.moved <= budget
    assert near.bound * (1 - LAST_BITS) <= near.rating <= first.rating * (1 + LAST_BITS)


def two_ranks():
    """Return a case of two ranks; the first has tables of 4, 3, 1 ms that move 10, 1, 1 bytes."""
    ms = (4.0, 3.0, 1.0)
    space = search_space([option(table, "device", (1, 0, cost)) for table, cost in enumerate(ms)])
    before = {id(each): (0,) for each in space.options}
    weight = {id(each): [size] for each, size in zip(space.options, (10, 1, 1), strict=True)}
    return Case(space, devices((9, 0), (9, 0)), before, weight)


def test_what_wins_most_for_its_bytes_moves_first():
    search = two_ranks().search()
    assert [search.search(budget).rating for budget in (0, 1, 2)] == [8.0, 5.0, 4.0]


def test_the_bound_knows_what_has_to_leave_the_slowest_rank():
    case = two_ranks()
    moves = case.moves(case.space.options)
    found = with_previous(case.space, case.devices, moves)
    bounds = [near_bound(found, moves, budget, 4.0) for budget in (0, 1, 2, 12)]
    assert np.allclose(bounds, [8.0, 5.0, 4.0, 4.0], rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(0, 12))
def test_ranks_with_room_for_their_shards_do_not_change_the_bound(case, budget):
    """With 0 as the known bound, all ranks count as crowded."""
    moves = case.moves(case.space.options)
    found = with_previous(case.space, case.devices, moves)
    known = best_plan(case.space, case.devices, Brief()).bound
    if len(found.without_options) or not math.isfinite(known):
        return
    least = moves.least_moved(case.space)[found.options]
    if np.minimum.reduceat(least, found.first[:-1]).sum() <= budget:  # else no plan is within it
        whole = near_bound(found, moves, budget, 0.0)
        assert near_bound(found, moves, budget, known) >= max(known, whole) * (1 - 1e-6)


def test_a_plan_that_no_longer_fits_moves_as_little_as_can_be_found():
    """The first rank now fits 2 of its 3 tables; the table with 5 bytes to move should stay."""
    space = search_space([option(table, "device", (1, 0, 1.0)) for table in range(3)])
    before = {id(each): (0,) for each in space.options}
    weight = {id(each): [size] for each, size in zip(space.options, (5, 2, 3), strict=True)}
    near = Case(space, devices((2, 0), (9, 0)), before, weight).search().search(1)
    assert near.moved == 2
    assert near.ranks.tolist() == [0, 1, 0]


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 12), st.integers(0, 60))
def test_the_time_may_be_up_at_any_moment(case, budget, looks):
    """A plan or none is returned whenever the time is up, also before the first bound."""
    deadline = Deadline(0.002, JumpingClock(looks))
    near = Replanning(case.space, case.devices, case.moves, deadline).search(budget)
    assert isinstance(near, Found | NotFound)


def test_a_search_prints_nothing(capfd):
    case = two_ranks()
    best_plan(case.space, case.devices, Brief(), 0)
    case.search().search(1)
    ctypes.CDLL(None).fflush(None)  # what a solver has printed may still be in C's buffer
    assert capfd.readouterr() == ("", "")


def test_a_run_may_start_at_a_plan_that_lists_tables_in_another_order(monkeypatch):
    """TorchRec's proposals may list the tables in any order."""
    case = two_ranks()
    listed = Found(np.array([2, 0, 1]), np.array([1, 0, 1]), 4.0, 1, 1)
    monkeypatch.setattr(
        "planners.embedding.best_plan.replanning.search_in_order", lambda *_, **__: listed
    )
    near = case.search().search(2)
    assert sorted(near.options.tolist()) == [0, 1, 2]
    assert (near.rating, near.moved) == (4.0, 2)

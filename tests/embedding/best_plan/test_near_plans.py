"""Plans near a previous one: within the move budget, above the bound, no worse with more budget."""

import ctypes
import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import given, settings, strategies as st
from small_problems import (
    KINDS,
    devices,
    fit,
    held_by,
    jumping_clock,
    load,
    option,
    options_with_ranks,
    problems,
    varied,
    ways,
)

from planners.embedding.best_plan.replanning import Replanning
from planners.embedding.best_plan.rounds import SAMPLE
from planners.embedding.best_plan.search import best_plan
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import search_space

LAST_BITS = 1e-12


class Brief(Deadline):
    """A deadline with a little work but unlimited time, since solvers use clocks of their own."""

    def __init__(self, seconds: float = 0.002) -> None:
        super().__init__(seconds, lambda: 0.0)

    left = math.inf

    def after(self, part: float) -> "Brief":
        return Brief(part * self.seconds)


@dataclass
class Case:
    """A problem, the ranks of the previous plan's options, and the bytes of a shard by option."""

    space: object
    devices: object
    before: dict
    weight: dict

    def moves(self, options, _ranks=0):
        homes, weights = [], []
        for each in options:
            count = len(each.shards)
            homes += self.before.get(id(each), (-1,) * count)
            weights += [self.weight[id(each)]] * count
        return Moves(np.array(homes, np.int64), np.array(weights, np.int64))

    def moved(self, plan):
        """Return the number of bytes that a plan moves, summed over its shards."""
        moves, first = self.moves(self.space.options), self.space.first_shard
        return sum(
            int(moves.weight[first[number] + index])
            for number, ranks in plan
            for index, rank in enumerate(ranks)
            if moves.home[first[number] + index] != rank
        )

    def plans(self):
        """Yield the rating and the bytes moved of every plan that fits, if they are not many."""
        choices = [
            [
                (number, ranks)
                for number in np.flatnonzero(self.space.table == table).tolist()
                for ranks in ways(self.space, self.devices, number)
            ]
            for table in range(self.space.tables)
        ]
        if math.prod(map(len, choices)) > 1_000:
            return
        for plan in product(*choices):
            loads = sum(load(self.space, self.devices, *each) for each in plan)
            if fit(loads, self.devices):
                yield float(loads[:, 0].max()), self.moved(plan)

    def search(self, seed=0):
        return Replanning(self.space, self.devices, self.moves, Brief(), seed)


@st.composite
def cases(draw):
    """Draw a problem with a previous plan, in which tables may be missing or not fit."""
    space, placed_on = draw(
        problems(kinds=tuple(KINDS)[:5], overfull=False).filter(lambda drawn: drawn[1].hosts > 0)
    )
    before, weight = {}, {}
    for table in range(space.tables):
        numbers = np.flatnonzero(space.table == table).tolist()
        weight |= dict.fromkeys([id(space.options[n]) for n in numbers], draw(st.integers(0, 5)))
        was = draw(st.sampled_from([None, *numbers, *numbers]))
        if was is not None and (possible := ways(space, placed_on, was)):
            before[id(space.options[was])] = draw(st.sampled_from(possible))
    return Case(space, placed_on, before, weight)


def all_on_the_first_rank(milliseconds, sizes, hbm):
    """Return a case of two ranks; the first had all tables, each of one byte of memory."""
    space = search_space(
        [option(table, "device", (1, 0, ms)) for table, ms in enumerate(milliseconds)]
    )
    numbers = [*map(id, space.options)]
    weight = dict(zip(numbers, sizes, strict=True))
    return Case(space, devices((hbm, 0), (9, 0)), dict.fromkeys(numbers, (0,)), weight)


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(0, 12))
def test_a_plan_within_the_budget_is_found_and_the_bound_is_below_all_that_are(case, budget):
    """If no plan is within the budget, this holds for the bytes that the plan moves."""
    plans = list(case.plans())
    near = case.search().search(budget)
    if any(bytes_moved <= budget for _, bytes_moved in plans):
        assert isinstance(near, Found)
        assert near.moved <= budget
    if not isinstance(near, Found):
        return
    plan = near.options, near.ranks
    assert fit(held_by(case.space, case.devices, *plan), case.devices)
    assert near.moved == case.moved(options_with_ranks(case.space, *plan))
    assert near.rating >= near.bound * (1 - LAST_BITS)
    if plans:
        allowed = max(budget, near.moved)
        best = min(rating for rating, bytes_moved in plans if bytes_moved <= allowed)
        assert near.bound * (1 - LAST_BITS) <= best <= near.rating * (1 + LAST_BITS)


@settings(max_examples=12, deadline=None)
@given(cases(), st.integers(0, 12), st.integers(0, 3))
def test_the_same_seed_gives_the_same_plan(case, budget, seed):
    """Options, ranks, rating and bound are all equal."""
    assert str(case.search(seed).search(budget)) == str(case.search(seed).search(budget))


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 8), st.integers(0, 9))
def test_on_many_ranks_a_plan_within_the_budget_is_no_worse_than_the_previous_plan(tables, budget):
    """The rounds of the local search rate a sample of the ranks."""
    space, placed_on = varied(tables, hosts=SAMPLE // 2)
    first = best_plan(space, placed_on, Brief())
    previous = options_with_ranks(space, first.options, first.ranks)
    before = {id(space.options[number]): ranks for number, ranks in previous}
    weight = dict.fromkeys(map(id, space.options), 1)
    near = Case(space, placed_on, before, weight).search().search(budget)
    assert fit(held_by(space, placed_on, near.options, near.ranks), placed_on)
    assert near.moved <= budget
    assert near.bound * (1 - LAST_BITS) <= near.rating <= first.rating * (1 + LAST_BITS)


def test_what_wins_most_for_its_bytes_moves_first():
    """The bound knows what has to leave the slowest rank."""
    search = all_on_the_first_rank((4.0, 3.0, 1.0), (10, 1, 1), hbm=9).search()
    plans = [search.search(budget) for budget in (0, 1, 2, 12)]
    assert [plan.rating for plan in plans] == [8.0, 5.0, 4.0, 4.0]
    assert np.allclose([plan.bound for plan in plans], [8.0, 5.0, 4.0, 4.0], rtol=1e-9)


def test_a_plan_that_no_longer_fits_moves_as_little_as_can_be_found():
    """The first rank now fits 2 of its 3 tables; the table with 5 bytes to move should stay."""
    near = all_on_the_first_rank((1.0, 1.0, 1.0), (5, 2, 3), hbm=2).search().search(1)
    assert near.moved == 2
    assert near.ranks.tolist() == [0, 1, 0]


def test_fewer_sharding_types_are_no_reason_to_move_a_table():
    """A table stays column-wise if its table-wise shard, which costs the same, has to move."""
    options = [option(table, "device", (1, 0, 1.0)) for table in (0, 1, 1)]
    options[0].sharding_type = options[2].sharding_type = "table_wise"
    before, weight = {id(each): (0,) for each in options[:2]}, dict.fromkeys(map(id, options), 1)
    case = Case(search_space(options), devices((9, 0), (9, 0)), before, weight)
    near = case.search().search(0)
    assert (sorted(near.options.tolist()), near.moved) == ([0, 1], 0)


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 12), st.integers(0, 60))
def test_the_time_may_be_up_at_any_moment(case, budget, looks):
    """A plan or none is returned whenever the time is up, also before the first bound."""
    deadline = Deadline(0.002, jumping_clock(looks))
    near = Replanning(case.space, case.devices, case.moves, deadline).search(budget)
    assert isinstance(near, Found | NotFound)


def test_a_search_prints_nothing(capfd):
    """The solvers have banners and logs of their own."""
    case = all_on_the_first_rank((4.0, 3.0, 1.0), (10, 1, 1), hbm=9)
    best_plan(case.space, case.devices, Brief(), 0)
    case.search().search(1)
    ctypes.CDLL(None).fflush(None)  # what a solver has printed may still be in C's buffer
    assert capfd.readouterr() == ("", "")

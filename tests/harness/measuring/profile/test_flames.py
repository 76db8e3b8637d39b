"""Comparison of two profiles: merging, noise, the tree, and the frames that explain most."""

import math

import pytest
from hypothesis import given, strategies as st

from harness.measuring.profile.flame_graph import BUILT_IN, Comparer, Frame, Profile, Weight

PLAN = Frame("planner", "plan")
COPY = Frame("copy", "deepcopy")
COST = Frame("planner", "cost")
LOOP = Frame("planner", "cost.<listcomp>")
LENGTH = Frame(BUILT_IN, "len")
MILLISECOND = 0.001


def profile(stacks: dict[tuple[Frame, ...], float], variant: str = "old", **facts) -> Profile:
    """Return a profile of one call, sampled every millisecond."""
    weights = {stack: Weight(s, s * MILLISECOND) for stack, s in stacks.items()}
    return Profile("toy", variant, weights, calls=1, unprofiled_s=1.0, **facts)


OLD = profile({(): 0.1, (PLAN,): 0.4, (PLAN, COPY): 2.0, (PLAN, COST): 0.5})
NEW = profile({(): 0.1, (PLAN,): 0.4, (PLAN, COST): 0.51}, "new")


def own_times(old: Profile, new: Profile) -> dict[Frame, float]:
    return {share.frame: share.own.seconds for share in Comparer(old, new).shares()}


def test_what_differs_most_comes_first():
    first, *others = Comparer(OLD, NEW).shares()
    assert first.frame == COPY
    assert (first.own.seconds, first.own.against) == (2.0, 0)
    assert first.own.differs
    assert not any(share.own.differs for share in others)


def test_own_times_sum_to_the_call():
    total = Comparer(OLD, NEW).total()
    assert total.seconds == pytest.approx(OLD.seconds) == pytest.approx(3.0)
    assert total.against == pytest.approx(1.01)
    assert math.fsum(own_times(OLD, NEW).values()) == pytest.approx(3.0)


def test_a_frame_is_taken_together_wherever_it_stands():
    twice = profile({(PLAN, COPY): 1.0, (COST, COPY): 2.0})
    assert own_times(twice, NEW)[COPY] == 3.0


def test_a_frame_that_calls_itself_takes_its_time_once():
    recursive = profile({(COPY, PLAN, COPY): 1.0, (COPY,): 0.5})
    (share,) = [each for each in Comparer(recursive, NEW).shares() if each.frame == COPY]
    assert (share.own.seconds, share.whole.seconds) == (1.5, 1.5)


def test_what_built_ins_and_comprehensions_take_is_their_function_s_own():
    nested = profile({(PLAN, COST): 1.0, (PLAN, COST, LOOP): 2.0, (PLAN, COST, LOOP, LENGTH): 4.0})
    own = own_times(nested, NEW)
    assert own[COST] == 7.0
    assert own[LOOP] == own[LENGTH] == 0
    assert own_times(profile({(LENGTH,): 1.0}), NEW)[Frame("", "toy/old against new")] == 1.0


@pytest.mark.parametrize(
    ("milliseconds", "against", "differs"),
    [(100, 100, False), (100, 125, False), (100, 135, True), (4, 0, False), (5, 0, True)],
)
def test_two_square_roots_of_the_samples_are_noise(milliseconds, against, differs):
    old = profile({(PLAN,): milliseconds * MILLISECOND})
    new = profile({(PLAN,): against * MILLISECOND})
    assert Comparer(old, new).total().differs is differs
    assert Comparer(new, old).total().differs is differs


def test_to_stand_out_among_many_takes_twice_as_much():
    few, more = (Comparer(profile({(PLAN,): s}), profile({})).total() for s in (0.01, 0.02))
    assert (few.differs, few.stands_out) == (True, False)
    assert (more.differs, more.stands_out) == (True, True)


@pytest.mark.parametrize(("against", "differs"), [(1020, False), (1040, True)])
def test_less_than_the_noise_floor_is_noise_in_any_number_of_samples(against, differs):
    assert (
        Comparer(profile({(PLAN,): 1000}), profile({(PLAN,): against})).total().differs is differs
    )


def test_what_turns_of_a_variant_differ_by_is_noise():
    steady = Comparer(profile({(PLAN,): 10.0}), profile({(PLAN,): 12.0}))
    drifting = Comparer(profile({(PLAN,): 10.0}, drift=0.1), profile({(PLAN,): 12.0}, drift=0.1))
    assert steady.total().differs
    assert not drifting.total().differs


def test_the_tree_is_rooted_at_the_call():
    root, *nodes = Comparer(OLD, NEW).tree()
    assert root.frame.text == "toy/old against new"
    assert (root.whole.seconds, root.whole.against) == (pytest.approx(3.0), pytest.approx(1.01))
    assert [(node.frame, node.parent) for node in nodes] == [(PLAN, 0), (COPY, 1), (COST, 1)]
    assert Comparer(OLD, OLD).tree()[0].frame.text == "toy/old"


def test_the_tree_is_as_wide_as_the_wider_one_at_each_place():
    mine, theirs = profile({(PLAN,): 3.0, (COST,): 1.0}), profile({(COPY,): 3.0, (COST,): 2.0})
    nodes = Comparer(mine, theirs).tree()
    assert {node.frame: node.width for node in nodes[1:]} == {PLAN: 3.0, COPY: 3.0, COST: 2.0}
    assert nodes[0].width == 8.0, "children must not take more room than their parent"


def test_what_cannot_be_seen_is_left_out_and_its_time_stays_with_its_callers():
    (root, plan) = Comparer(*[profile({(PLAN,): 100.0, (PLAN, COPY): 0.01})] * 2).tree()
    assert (plan.whole.seconds, plan.own.seconds) == (100.01, 100.0)
    assert root.whole.seconds == 100.01


frames = st.sampled_from([PLAN, COPY, COST, LOOP, LENGTH])
stacks = st.dictionaries(
    st.lists(frames, max_size=5).map(tuple), st.floats(1e-6, 1e3), min_size=1, max_size=8
)


@given(stacks, stacks)
def test_a_tree_always_adds_up(mine, theirs):
    comparer = Comparer(profile(mine), profile(theirs))
    nodes = comparer.tree()
    assert nodes[0].whole.seconds == pytest.approx(comparer.total().seconds)
    for number, node in enumerate(nodes):
        children = [each for each in nodes[1:] if each.parent == number]
        assert all(nodes.index(each) > number for each in children)
        assert node.whole.seconds <= node.width * (1 + 1e-9)
        below = math.fsum(each.width for each in children)
        assert below <= node.width * (1 + 1e-9)


def test_a_very_deep_stack_is_no_harder_than_another():
    deep = profile({(PLAN,) * 2000: 1.0})
    assert len(Comparer(deep, deep).tree()) == 2001


def test_nothing_was_sampled():
    empty = profile({})
    assert [node.width for node in Comparer(empty, empty).tree()] == [0]
    assert Comparer(empty, empty).shares() == []
    assert not Comparer(empty, empty).total().differs


def test_the_profiler_s_cost_is_the_ratio_of_calls_with_and_without_it():
    assert profile({(): 1.8}).overhead == 1.8
    assert math.isnan(Profile("toy", "old", {}, calls=1, unprofiled_s=0.0).overhead)

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


NEW = profile({(PLAN,): 1.0}, "new")


@pytest.mark.parametrize(
    ("stacks", "frame", "own", "whole"),
    [
        ({(PLAN, COPY): 1.0, (COST, COPY): 2.0}, COPY, 3.0, 3.0),
        ({(COPY, PLAN, COPY): 1.0, (COPY,): 0.5}, COPY, 1.5, 1.5),
        ({(COST,): 1.0, (COST, LOOP): 2.0, (COST, LOOP, LENGTH): 4.0}, COST, 7.0, 7.0),
        ({(LENGTH,): 1.0}, Frame("", "toy/old against new"), 1.0, 1.0),
    ],
    ids=["two callers", "recursion", "built-ins and comprehensions", "the call itself"],
)
def test_a_frame_s_time_is_taken_together(stacks, frame, own, whole):
    """A frame's time is summed over stacks, once if it calls itself, with built-ins as its own."""
    (share,) = [s for s in Comparer(profile(stacks), NEW).shares() if s.frame == frame]
    assert (share.own.seconds, share.whole.seconds) == (own, whole)


@pytest.mark.parametrize(
    ("seconds", "against", "drift", "differs"),
    [
        (0.1, 0.125, 0.0, False),
        (0.1, 0.135, 0.0, True),
        (0.004, 0.0, 0.0, False),
        (0.005, 0.0, 0.0, True),
        (1000, 1020, 0.0, False),
        (1000, 1040, 0.0, True),
        (10.0, 12.0, 0.0, True),
        (10.0, 12.0, 0.1, False),
    ],
)
def test_two_standard_errors_and_the_floor_are_noise(seconds, against, drift, differs):
    """Noise comes from the number of samples and from the drift of turns, and is at least 3 %."""
    old, new = (profile({(PLAN,): time}, drift=drift) for time in (seconds, against))
    assert Comparer(old, new).total().differs is differs
    assert Comparer(new, old).total().differs is differs


def test_the_tree_is_as_wide_as_the_wider_side():
    """Children take no more room than their parent, and what cannot be seen is left out."""
    mine, theirs = profile({(PLAN,): 3.0, (COST,): 1.0}), profile({(COPY,): 3.0, (COST,): 2.0})
    root, *nodes = Comparer(mine, theirs).tree()
    assert {node.frame: node.width for node in nodes} == {PLAN: 3.0, COPY: 3.0, COST: 2.0}
    assert root.width == 8.0
    (root, plan) = Comparer(*[profile({(PLAN,): 100.0, (PLAN, COPY): 0.01})] * 2).tree()
    assert (plan.whole.seconds, plan.own.seconds) == (100.01, 100.0)


frames = st.sampled_from([PLAN, COPY, COST, LOOP, LENGTH])
stacks = st.dictionaries(st.lists(frames, max_size=5).map(tuple), st.floats(1e-6, 1e3), max_size=8)


@given(stacks, stacks)
def test_a_tree_always_adds_up(mine, theirs):
    """Nodes come after their parents, whose widths their own widths do not exceed."""
    nodes = Comparer(profile(mine), profile(theirs)).tree()
    assert nodes[0].whole.seconds == pytest.approx(profile(mine).seconds)
    for number, node in enumerate(nodes):
        children = [each for each in nodes[1:] if each.parent == number]
        assert all(nodes.index(each) > number for each in children)
        assert node.whole.seconds <= node.width * (1 + 1e-9)
        assert math.fsum(each.width for each in children) <= node.width * (1 + 1e-9)

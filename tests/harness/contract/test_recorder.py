"""Phases and counters of one observed call."""

import math

import pytest
from fake_clock import FakeClock
from hypothesis import given, strategies as st

from harness.contract.recorder import Recorder

trees = st.recursive(
    st.tuples(st.integers(0, 9), st.just([]), st.booleans()),
    lambda inner: st.tuples(st.integers(0, 9), st.lists(inner, max_size=3), st.booleans()),
    max_leaves=12,
)


@given(trees)
def test_each_moment_belongs_to_the_innermost_phase_also_on_errors(tree):
    """Any nesting of phases, also of one in itself, shares out the whole time."""
    clock = FakeClock()
    recorder = Recorder(clock.cpu)
    expected = {"other": 0, "0": 0, "1": 0, "2": 0}

    def walk(node, phase: str) -> None:
        seconds, children, fails = node
        clock.advance(seconds)
        expected[phase] += seconds
        assert recorder.current == phase
        for index, child in enumerate(children):
            try:
                with recorder.phase(str(index)):
                    walk(child, str(index))
            except ArithmeticError:
                pass
        if fails:
            raise ArithmeticError

    started = clock.cpu()
    try:
        with recorder.call():
            walk(tree, "other")
    except ArithmeticError:
        pass
    assert math.isclose(sum(recorder.phases.values()), clock.cpu() - started)
    assert {**dict.fromkeys(expected, 0), **recorder.phases} == expected
    assert recorder.current is None


def test_a_timed_function_is_a_phase_of_the_call(clock):
    """It keeps its name, counts failing calls too, and records nothing outside of the call."""

    def slow(left: int, *, right: int) -> int:
        """Add."""
        clock.advance(5)
        if left == right:
            raise ValueError("mine")
        return left + right

    recorder = Recorder(clock.cpu)
    timed = recorder.timed("rate", slow, counter="ratings")
    timed(1, right=2)
    with recorder.call():
        clock.advance(1)
        assert timed(2, right=3) == 5
        with pytest.raises(ValueError, match="mine"):
            timed(2, right=2)
    timed(1, right=2)
    assert recorder.phases == {"other": 1, "rate": 10}
    assert recorder.counters == {"ratings": 2}
    assert (timed.__name__, timed.__doc__) == ("slow", "Add.")

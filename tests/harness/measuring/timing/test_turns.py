"""A turn of a variant: what is timed and counted of it, and what it leaves as it was."""

import gc
import math
import os
import sys
from contextlib import contextmanager, nullcontext

import pytest

from harness.contract import Measured, Prepared
from harness.measuring.timing.turns import count_work, timed_turn


def test_only_the_calls_are_timed(clock, monkeypatch):
    """Collecting, installing, leaving and renewing take no part of a call's time."""
    monkeypatch.setattr(gc, "collect", lambda: clock.advance(1000))

    @contextmanager
    def installed():
        clock.advance(100)
        yield
        clock.advance(100)

    def run() -> str:
        clock.advance(3.0, 0.5, 0.25)
        return "decided"

    for renew in (None, lambda: clock.advance(5.0)):
        turn = timed_turn(Prepared(run, installed, renew=renew), clock, calls=3)
        assert turn[:4] == (3.0, 0.5, 0.25, "decided")


def test_times_taken_elsewhere_are_the_times(clock):
    """A call measured in another process has its times, and no thread of ours."""

    def run() -> Measured:
        clock.advance(9.0)
        return Measured("decision", wall_s=0.25, cpu_s=0.125)

    turn = timed_turn(Prepared(run), clock, calls=4)
    assert turn[:5] == (0.25, 0.125, None, "decision", 9.0)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_interpreter_is_as_before_after_a_turn(clock, tmp_path, monkeypatch, enabled, fails):
    """A variant that changes how the interpreter runs, or fails, changes it for no other one."""
    monkeypatch.chdir(tmp_path)
    collections = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(gc.isenabled()))

    def settings() -> list[object]:
        functions = [sys.getprofile(), sys.gettrace()]
        limits = [sys.getrecursionlimit(), sys.getswitchinterval(), gc.get_threshold()]
        return [*functions, *limits, gc.isenabled(), os.getcwd()]  # noqa: PTH109

    def run() -> None:
        assert not gc.isenabled()
        os.chdir("/")
        sys.setrecursionlimit(sys.getrecursionlimit() + 500)
        sys.setswitchinterval(1e-6)
        gc.set_threshold(1)
        gc.enable()
        sys.setprofile(lambda *_: None)
        if fails:
            raise ValueError("mine")

    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        before = settings()
        with pytest.raises(ValueError, match="mine") if fails else nullcontext():
            timed_turn(Prepared(run), clock)
        assert settings() == before
        assert collections == [enabled]
    finally:
        (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("items", [100, 1000])
def test_python_and_built_in_calls_are_counted(items):
    """The count is exact, and the same each time."""
    work = count_work(Prepared(lambda: sum(math.isqrt(abs(item)) for item in range(items))))
    # run, sum, the generator that is entered once for each item and at its end, abs and isqrt
    assert work.python_calls == 2 + (items + 1) + 2 * items
    assert work.spread == 0


def test_a_count_that_differs_and_the_share_of_built_in_functions_are_told():
    """Work inside built-in functions is not counted, but its share of the time is known."""
    calls = iter([10, 13])
    assert count_work(Prepared(lambda: [abs(n) for n in range(next(calls))])).spread == 3
    mostly = count_work(Prepared(lambda: sorted(range(300_000), key=None)))
    hardly = count_work(Prepared(lambda: [None for _ in range(300_000)]))
    assert (mostly.built_in_share > 0.8, hardly.built_in_share < 0.2) == (True, True)

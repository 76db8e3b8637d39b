"""Profiles of calls: only timed turns, with the call as root."""

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Thread

import pytest
import toy
import toy_registries

from harness.contract import Measured, Prepared
from harness.measuring.profile.flame_graph import Frame, Profile
from harness.measuring.profile.profiler import profile, profile_variants
from harness.measuring.request import CALL, Request
from harness.measuring.timing.ways import Timing
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.model.settings import Settings
from harness.topologies.lookup import find_topology

HERE = "test_profiling"


def spin(seconds: float = 0.03) -> None:
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        pass


class Planner:
    def plan(self) -> None:
        spin()


def profile_of(run: Callable[[], object], **fields) -> Profile:
    """Profile calls; repeat for longer if a busy machine left the profiler without samples."""
    for seconds in (0.05, 0.5, 5.0):
        found = profile("toy", Timing({"mine": Prepared(run, **fields)}), seconds)["mine"]
        if any(found.stacks):
            break
    return found


def names(profiled: Profile) -> set[str]:
    return {frame.text for stack in profiled.stacks for frame in stack}


def test_stacks_begin_at_the_call():
    """Neither the profiler's frames nor what renews the input are part of a call."""
    profiled = profile_of(lambda: spin(), renew=lambda: spin())
    outermost = {stack[:1] for stack in profiled.stacks}
    assert outermost <= {(), (Frame(HERE, "spin"),)}
    assert (Frame(HERE, "spin"),) in outermost


def test_a_function_is_named_by_its_module_and_its_definition():
    """An inherited method has one name in all subclasses, and built-in functions have names."""
    quick = type("QuickPlanner", (Planner,), {})()
    assert f"{HERE}.Planner.plan" in names(profile_of(lambda: quick.plan()))
    assert "sleep (built-in)" in names(profile_of(lambda: (time.sleep(0.01), 1)))


def test_seconds_are_those_of_a_call(clock):
    """Samples are scaled to the measured time of a call."""

    def run() -> None:
        spin(0.005)
        clock.advance(0.125)

    profiled = profile("toy", Timing({"mine": Prepared(run)}, clock), 1.0)["mine"]
    assert profiled.seconds == pytest.approx(0.125)
    assert (profiled.calls, profiled.drift) == (8, 0)


class TestTurns:
    def test_they_are_those_that_are_timed(self):
        """Each turn is taken once without the profiler and once with it, as timing takes it."""
        seen = Counter()

        def run() -> None:
            seen["profiled" if sys.getprofile() else "plain"] += 1
            assert not gc.isenabled()
            assert toy.World.changed, "not installed"

        renew = partial(seen.update, ["renewed"])
        prepared = Prepared(run, installed=toy.changed_world, renew=renew)
        profiled = profile("toy", Timing({"mine": prepared}), 0.001)["mine"]
        assert seen["renewed"] == seen["profiled"] + seen["plain"]
        assert seen["profiled"] == profiled.calls == seen["plain"] - 2, "two to warm up"

    def test_variants_take_turns_until_each_has_enough(self, clock):
        """Every other round runs in reverse order."""
        turns, calls = [], Counter()

        def begins(stage: str, name: str) -> None:
            turns.extend([name] if stage == CALL else [])

        def prepared(name: str, lasts: float) -> Prepared:
            return Prepared(lambda: (calls.update([name]), clock.advance(lasts)))

        both = {"a": prepared("a", 1.0), "b": prepared("b", 1.5), "slow": prepared("slow", 4.0)}
        profile("toy", Timing(both, clock, begins), 3.0)
        assert turns == ["a", "b", "slow", "a", "b", "slow", "slow", "b", "a", "a"]
        assert calls == {"a": 8, "b": 6, "slow": 6}

    def test_a_long_call_is_made_once_without_the_profiler_and_once_with_it(self, clock):
        """Calls of more than some seconds are not warmed up."""
        calls = []

        def run() -> None:
            calls.append(sys.getprofile() is not None)
            clock.advance(6.0 * len(calls))

        profiled = profile("toy", Timing({"mine": Prepared(run)}, clock), 60.0)["mine"]
        assert calls == [False, True]
        assert (profiled.unprofiled_s, profiled.overhead) == (6.0, pytest.approx(2.0))

    def test_who_works_elsewhere_is_known(self):
        """The share of the CPU time in other threads and processes is unseen."""

        def ask() -> Measured[None]:
            spin(0.01)
            return Measured(None, wall_s=50.0, cpu_s=50.0)

        def in_a_thread() -> None:
            thread = Thread(target=spin)
            thread.start()
            thread.join()

        profiled = profile_of(ask)
        assert profiled.unseen == 1.0
        assert profiled.seconds < 50, "it shows this process waiting"
        assert profile_of(lambda: spin()).unseen < 0.1
        assert profile_of(in_a_thread).unseen > 0.5


@pytest.mark.parametrize(
    ("variants", "reason"),
    [
        (["missing"], f"'missing' is not installed: it needs {toy.NOT_THERE}."),
        (["reference", "raises"], "'raises' failed: ValueError: no item likes me"),
        (["aloof"], "'aloof' is not applicable: It has no part in this."),
        (["silent"], "'silent' failed: the call was stopped after 1 s."),
    ],
)
def test_failures_in_the_child_say_why_and_of_whom(variants, reason):
    """The error names the variant."""
    topology = find_topology("dgx_a100_80gb", 2)
    request = Request(toy.TOY, WorkloadSpec("toy"), topology, variants)
    settings = Settings(0.5 if "silent" in variants else 60.0)
    with pytest.raises(ShardbenchError) as failed:
        profile_variants(request, settings, 0.05, registry=toy_registries.toy_registry)
    assert str(failed.value).startswith(reason)

"""Profiles of calls: only timed turns, with the call as root, without paths of the machine."""

import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import toy
from fake_clock import FakeClock

from harness.contract import Measured, Prepared
from harness.measuring.profile import profiler as profiling
from harness.measuring.profile.flame_graph import Frame, Profiled
from harness.measuring.profile.frame_names import FrameNames
from harness.measuring.profile.profiler import profile, profile_variants
from harness.measuring.request import CALL, Request
from harness.measuring.timing.turns import SystemClock
from harness.measuring.timing.ways import Observer
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import WorkloadSpec
from harness.model.settings import Settings
from harness.topologies.lookup import find_topology

HERE = "test_profiling"


@pytest.fixture(autouse=True)
def _quick_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable garbage collection, since with all tests' imports it would take most of a turn."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


def spin(seconds: float = 0.03) -> None:
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        pass


class Planner:
    def plan(self) -> None:
        spin()


class QuickPlanner(Planner):
    pass


def profile_of(run: Callable[[], object], **fields) -> Profiled:
    """Profile calls; repeat for longer if a busy machine left the profiler without samples."""
    for seconds in (0.05, 0.5, 5.0):
        found = profile("toy", {"mine": Prepared(run, **fields)}, SystemClock(), seconds)["mine"]
        if any(found.profile.stacks):
            break
    return found


def names(profiled: Profiled) -> set[str]:
    return {frame.text for stack in profiled.profile.stacks for frame in stack}


class TestStacks:
    def test_they_begin_at_the_call(self):
        profiled = profile_of(lambda: spin())
        outermost = {stack[:1] for stack in profiled.profile.stacks}
        assert outermost <= {(), (Frame(HERE, "spin"),)}
        assert (Frame(HERE, "spin"),) in outermost

    def test_the_called_function_itself_is_the_root(self):
        assert names(profile_of(spin)) <= {"perf_counter (built-in)"}

    def test_a_method_is_called_after_the_class_that_defines_it(self):
        quick = QuickPlanner()
        assert f"{HERE}.Planner.plan" in names(profile_of(lambda: quick.plan()))

    def test_setting_up_anew_is_no_part_of_the_call(self):
        def renew_at_length() -> None:
            spin()

        profiled = profile_of(lambda: spin(0.01), renew=renew_at_length)
        assert not any("renew_at_length" in name for name in names(profiled))

    def test_seconds_are_those_of_a_call(self, clock: FakeClock):
        def run() -> None:
            spin(0.005)
            clock.advance(0.125)

        (profiled,) = profile("toy", {"mine": Prepared(run)}, clock, 1.0).values()
        assert profiled.profile.seconds == pytest.approx(0.125)
        assert profiled.profile.calls == 8
        assert profiled.profile.drift == 0


class TestTurns:
    def test_they_are_those_that_are_timed(self):
        seen = Counter()

        def run() -> None:
            seen["collected" if gc.isenabled() else "undisturbed"] += 1
            assert toy.World.changed, "not installed"

        prepared = Prepared(
            run, installed=toy.changed_world, renew=lambda: seen.update(["renewed"])
        )
        profiled = profile("toy", {"mine": prepared}, SystemClock(), 0.001)["mine"]
        assert seen["renewed"] == seen["collected"] + seen["undisturbed"]
        assert seen["undisturbed"] == 2 * profiled.profile.calls, "with the profiler and without"
        assert gc.isenabled()

    @pytest.mark.parametrize(("seconds", "calls"), [(4.0, 32), (1.0, 8), (0.5, 4), (0.25, 2)])
    def test_they_are_no_longer_than_asked_for(self, clock: FakeClock, seconds, calls):
        (profiled,) = profile(
            "toy", {"mine": Prepared(lambda: clock.advance(0.125))}, clock, seconds
        ).values()
        assert profiled.profile.calls == calls

    def test_variants_take_turns_there_and_back(self, clock: FakeClock):
        turns: list[str] = []

        def begins(stage: str, name: str) -> None:
            turns.extend([name] if stage == CALL else [])

        observer = Observer(begins)
        prepared = {
            name: Prepared(lambda lasts=lasts: clock.advance(lasts))
            for name, lasts in {"a": 1.0, "b": 1.5}.items()
        }
        profile("toy", prepared, clock, 2.0, observer)
        warm, *rounds = ["".join(turns)[:2], "".join(turns)[2:6], "".join(turns)[6:]]
        assert (warm, rounds) == ("ab", ["aabb", "bbaa"])

    def test_who_has_enough_is_left_alone(self, clock: FakeClock):
        calls = Counter()

        def prepared(name: str, lasts: float) -> Prepared:
            return Prepared(lambda: (calls.update([name]), clock.advance(lasts)))

        profiled = profile(
            "toy", {"short": prepared("short", 0.5), "slow": prepared("slow", 4.0)}, clock, 2.0
        )
        assert {name: each.profile.calls for name, each in profiled.items()} == {
            "short": 4, "slow": 2
        }  # fmt: skip

    def test_a_long_call_is_made_once_without_the_profiler_and_once_with_it(self, clock: FakeClock):
        calls = []

        def run() -> None:
            calls.append(sys.getprofile() is not None)
            clock.advance(6.0 * len(calls))

        (profiled,) = profile("toy", {"mine": Prepared(run)}, clock, 60.0).values()
        assert len(calls) == 2
        assert calls[0] is False
        assert profiled.profile.unprofiled_s == 6.0
        assert profiled.profile.overhead == pytest.approx(2.0)

    def test_calls_without_the_profiler_are_without_it(self, clock: FakeClock):
        profiled_now = []

        def run() -> None:
            profiled_now.append(sys.getprofile() is not None)
            clock.advance(1.8 if profiled_now[-1] else 1.0)

        (profiled,) = profile("toy", {"mine": Prepared(run)}, clock, 3.0).values()
        assert profiled_now == [False, False, False, True, False, True]
        assert profiled.profile.overhead == pytest.approx(1.8)

    def test_turns_that_differ_make_noise(self, clock: FakeClock):
        lasts = iter([1.0, 1.0, 1.0, 1.0, 1.0, 3.0])
        (profiled,) = profile(
            "toy", {"mine": Prepared(lambda: clock.advance(next(lasts)))}, clock, 2.0
        ).values()
        assert profiled.profile.drift == pytest.approx(0.5)

    def test_setting_up_at_length_does_not_go_on_for_ever(self, clock: FakeClock):
        prepared = Prepared(lambda: clock.advance(0.001), renew=lambda: clock.advance(0.1))
        (profiled,) = profile("toy", {"mine": prepared}, clock, 2.0).values()
        assert 0 < profiled.profile.calls <= 105

    def test_a_clock_that_stands_still_ends_too(self, clock: FakeClock, monkeypatch):
        monkeypatch.setattr(profiling, "_MOST_TURNS", 3)
        monkeypatch.setattr(profiling, "_MOST_CALLS_OF_TURN", 10)
        (profiled,) = profile("toy", {"mine": Prepared(lambda: None)}, clock, 2.0).values()
        assert profiled.profile.calls == 30

    def test_an_error_leaves_no_profiler_behind(self):
        def run() -> None:
            if sys.getprofile() is not None:
                raise ValueError("worn out")

        with pytest.raises(ValueError, match="worn out"):
            profile_of(run)
        assert sys.getprofile() is None

    def test_who_works_elsewhere_is_known(self):
        def ask() -> Measured[None]:
            spin(0.01)
            return Measured(None, wall_s=50.0, cpu_s=50.0)

        profiled = profile_of(ask)
        assert profiled.profile.unseen == 1.0
        assert profiled.profile.seconds < 50, "it shows this process waiting"
        assert profile_of(lambda: spin()).profile.unseen < 0.1

    def test_work_in_other_threads_is_unseen(self):
        """The share of the CPU time in threads that the call starts is known."""

        def run() -> None:
            thread = Thread(target=spin)
            thread.start()
            thread.join()

        assert profile_of(run).profile.unseen > 0.5


class TestFiles:
    def test_they_hold_no_path_of_this_machine(self):
        files = profile_of(lambda: json.dumps(spin())).files
        assert "test_profiling.py" in files["txt"]
        for text in files.values():
            assert str(Path(__file__).parents[4]) not in text
            assert sys.prefix not in text
            assert sys.base_prefix + "/lib" not in text

    def test_they_are_rooted_at_the_call(self):
        files = profile_of(lambda: spin()).files
        tree = files["txt"][files["txt"].index("toy/mine") :]
        assert "timed_turn" not in files["speedscope.json"]
        assert "spin" in tree
        speedscope = json.loads(files["speedscope.json"])
        assert {each["name"] for each in speedscope["shared"]["frames"]} >= {"toy/mine", "spin"}

    def test_they_need_no_network(self):
        assert "fonts.g" not in profile_of(lambda: spin()).files["html"]

    def test_nothing_sampled_makes_files_all_the_same(self, clock: FakeClock):
        (profiled,) = profile(
            "toy", {"mine": Prepared(lambda: clock.advance(0.5))}, clock, 1.0
        ).values()
        assert profiled.files.keys() == {"html", "speedscope.json", "txt"}


class TestNames:
    @pytest.mark.parametrize(
        ("info", "frame"),
        [
            ("f\x00<string>\x001\x01cPoint", Frame("<string>", "Point.f")),
            ("f\x00<frozen importlib._bootstrap>\x001", Frame("importlib._bootstrap", "f")),
            ("dict.get\x00<built-in>\x000", Frame("<built-in>", "dict.get")),
            (
                "pybind11_detail_function_record_v1_gxx_abi.inputs\x00<built-in>\x000",
                Frame("<built-in>", "inputs"),
            ),
            ("f\x00/nowhere/at/all/plan.py\x001\x01l5", Frame("plan", "f")),
            (f"deepcopy\x00{json.__file__}\x00999", Frame("json", "deepcopy")),
            ("f", Frame("", "f")),
            ("", Frame("", "")),
            ("f\x00/nowhere/\udcff.py\x00x", Frame("?", "f")),
        ],
    )
    def test_whatever_the_profiler_says_has_a_name(self, info: str, frame: Frame):
        assert FrameNames().frame(info) == frame

    def test_lines_do_not_matter(self):
        code = Planner.plan.__code__
        infos = [
            f"{code.co_name}\x00{code.co_filename}\x00{code.co_firstlineno}\x01c{kind}\x01l{line}"
            for kind, line in (("Planner", 44), ("QuickPlanner", 45))
        ]
        assert {FrameNames().frame(info) for info in infos} == {Frame(HERE, "Planner.plan")}

    @pytest.mark.parametrize(
        ("file", "place"),
        [(json.__file__, "json/__init__.py"), (json.decoder.__file__, "json/decoder.py")],
    )
    def test_a_path_begins_at_its_package(self, file: str, place: str):
        assert FrameNames().without_path(f"f\x00{file}\x003\x01l9") == f"f\x00{place}\x003"


class TestProfileOfAVariant:
    """Profiles variants in a child process, as the command line does."""

    def profile(
        self, *variants: str, budget: float = 60.0, **parameters: str
    ) -> dict[str, Profiled]:
        topology = find_topology("dgx_a100_80gb", 2)
        request = Request(toy.TOY, WorkloadSpec("toy", parameters), topology, variants)
        return profile_variants(request, Settings(budget), 0.05, registry=toy.toy_registry)

    def test_it_shows_where_the_time_goes(self):
        profiled = self.profile("reference", "same")
        assert list(profiled) == ["reference", "same"]
        for name, each in profiled.items():
            assert each.profile.variant == name
            assert "toy.family.work" in names(each)
            assert each.profile.calls > 0
            assert each.profile.unprofiled_s > 0
            assert f"toy/{name}" in each.files["txt"]

    def test_variants_do_not_disturb_each_other(self):
        assert self.profile("installed", "undisturbed").keys() == {"installed", "undisturbed"}

    @pytest.mark.parametrize(
        ("variants", "reason"),
        [
            (["missing"], f"'missing' is not installed: it needs {toy.NOT_THERE}."),
            (["reference", "raises"], "'raises' failed: ValueError: no item likes me"),
            (["raises-later"], "'raises-later' failed: ValueError: worn out"),
            (["aloof"], "'aloof' is not applicable: It has no part in this."),
        ],
    )
    def test_failures_say_why_and_of_whom(self, variants: list[str], reason: str):
        with pytest.raises(ShardbenchError) as failed:
            self.profile(*variants)
        assert str(failed.value) == reason

    def test_a_killed_child_is_a_failure(self):
        with pytest.raises(ShardbenchError, match=r"'killed' failed: .*signal 9"):
            self.profile("killed")

    def test_it_is_stopped_over_budget(self):
        with pytest.raises(ShardbenchError, match=r"^'silent' was stopped after 1 s\.$"):
            self.profile("silent", budget=1.0)

    def test_bad_input_is_bad_usage(self):
        with pytest.raises(UsageError, match="Parameter 'size'"):
            self.profile("same", size="0")


def test_a_profile_can_travel_between_processes(clock: FakeClock):
    import pickle

    (profiled,) = profile(
        "toy", {"mine": Prepared(lambda: clock.advance(0.5))}, clock, 1.0
    ).values()
    assert pickle.loads(pickle.dumps(profiled)) == replace(profiled)

"""A turn: warm-up, calls repeated until the clock resolves them, and the conditions around them."""

import gc
import math
import sys
from contextlib import contextmanager
from itertools import count

import pytest
from fake_clock import FakeClock
from sampled import CALL, run_sample, taking, turn_seconds

from harness.contract import Measured, Prepared
from harness.measuring.timing.turns import timed_turn
from harness.measuring.timing.verdict import judge


class TestWarmUp:
    def test_the_first_call_of_each_does_not_count(self, clock: FakeClock):
        first = count()
        prepared = {"reference": taking(clock, lambda: 50.0 if next(first) == 0 else CALL)}
        times, diary = run_sample(clock, prepared, least_blocks=3)
        assert diary.began[0] == "reference"
        assert len(diary.began) > len(diary.ended) == 6
        assert times["reference"].wall_s == [CALL] * 6

    def test_it_ends_with_its_time(self, clock: FakeClock):
        names = ("reference", "a", "b", "c", "d", "e")
        prepared = {name: taking(clock, 10) for name in names}
        _, diary = run_sample(clock, prepared, None, least_blocks=1, warmup_seconds=15)
        assert len(diary.ended) == 12
        assert len(diary.began) - len(diary.ended) <= 3

    @pytest.mark.parametrize("seconds", [1e-5, 1e-4, 3e-4, 0.0019])
    def test_short_calls_are_repeated_until_the_clock_resolves_them(
        self, clock: FakeClock, seconds: float
    ):
        turns, _ = turn_seconds(clock, lambda: clock.advance(seconds))
        assert all(0.00199 <= length <= 0.02 for length in turns)

    def test_other_programs_do_not_shorten_a_turn(self, clock: FakeClock):
        # 0.45 ms of work take 10 ms where twenty programs share the core.
        calls = count()
        run_sample(
            clock,
            {"reference": Prepared(lambda: (next(calls), clock.advance(0.01, 0.00045)))},
            least_blocks=1,
            most_blocks=1,
        )
        # Two to warm up, and two turns of 2 ms, each after a call that is not timed.
        assert next(calls) == 2 + 2 * (1 + 5)

    def test_a_repeated_call_s_time_is_that_of_one(self, clock: FakeClock):
        prepared = {"reference": Prepared(lambda: clock.advance(0.003, 0.002))}
        times, _ = run_sample(clock, prepared, least_blocks=3)
        assert times["reference"].wall_s == pytest.approx([0.003] * 6)
        assert times["reference"].cpu_s == pytest.approx([0.002] * 6)

    def test_a_slow_first_call_does_not_hide_that_the_others_are_short(self, clock: FakeClock):
        # The first call imports, fills caches, compiles.
        calls = count()
        turns, _ = turn_seconds(clock, lambda: clock.advance(0.0001 if next(calls) else 1.0))
        assert all(length >= 0.00199 for length in turns)

    def test_calls_too_short_for_any_clock_come_to_an_end(self, clock: FakeClock):
        calls = count()
        run_sample(clock, {"reference": Prepared(lambda: next(calls))}, least_blocks=3)
        assert next(calls) <= 100_000

    def test_long_calls_are_not_repeated(self, clock: FakeClock):
        calls = count()

        def run() -> None:
            next(calls)
            clock.advance(0.5)

        _, diary = run_sample(clock, {"reference": Prepared(run)}, least_blocks=3)
        assert next(calls) == len(diary.began)


class TestMeasured:
    def test_times_taken_elsewhere_are_the_times(self, clock: FakeClock):
        def run() -> Measured:
            clock.advance(9)
            return Measured("decision", wall_s=2.0, cpu_s=0.5)

        prepared = {"reference": taking(clock, CALL), "abroad": Prepared(run)}
        times, _ = run_sample(clock, prepared, least_blocks=3)
        assert times["abroad"].wall_s == [2.0] * 6
        assert times["abroad"].cpu_s == [0.5] * 6
        assert times["abroad"].thread_cpu_s == []
        ratio = times["abroad"].ratio_to(times["reference"])
        assert ratio is not None
        assert math.isclose(ratio.value, 0.5)

    def test_what_is_made_anew_before_each_call_is_not_timed(self, clock: FakeClock):
        ready = []

        def renew() -> None:
            clock.advance(5.0)
            ready.append("fresh")

        def run() -> str:
            clock.advance(0.25)
            return ready.pop()

        turn = timed_turn(Prepared(run, renew=renew), clock, calls=3)
        assert turn == (0.25, 0.25, 0.25, "fresh")
        assert not ready

    def test_repeated_calls_count_once_each(self, clock: FakeClock):
        def run() -> Measured:
            clock.advance(0.01)
            return Measured("decision", wall_s=0.25, cpu_s=0.125)

        assert timed_turn(Prepared(run), clock, calls=4) == (0.25, 0.125, None, "decision")

    def test_a_call_that_is_long_here_is_not_repeated_because_it_was_short_there(
        self, clock: FakeClock
    ):
        # Starting the process abroad takes seconds, the call there microseconds.
        calls = count()

        def run() -> Measured:
            next(calls)
            clock.advance(2)
            return Measured("decision", wall_s=1e-5, cpu_s=1e-5)

        _, diary = run_sample(clock, {"reference": Prepared(run)}, least_blocks=3)
        assert next(calls) <= 2 * len(diary.began)

    @pytest.mark.parametrize("cpu_s", [0.0, -1.0, math.nan])
    def test_a_time_that_is_none_does_not_stop_the_others(self, clock: FakeClock, cpu_s: float):
        timeless = Prepared(lambda: Measured("decision", wall_s=1.0, cpu_s=cpu_s))
        prepared = {
            "reference": taking(clock, CALL),
            "timeless": timeless,
            "faster": taking(clock, CALL / 2),
        }
        times, _ = run_sample(clock, prepared, least_blocks=3, most_blocks=4)
        ratio = times["faster"].ratio_to(times["reference"])
        assert ratio is not None
        assert judge(ratio) == "faster"


class TestSurroundings:
    @pytest.mark.parametrize("enabled", [True, False])
    @pytest.mark.parametrize("fails", [True, False])
    def test_garbage_collection_is_off_during_calls_and_restored(
        self, clock: FakeClock, collections: list[bool], enabled: bool, fails: bool
    ):
        def run() -> None:
            assert not gc.isenabled()
            clock.advance(CALL)
            if fails:
                raise ValueError("mine")

        was_enabled = gc.isenabled()
        (gc.enable if enabled else gc.disable)()
        try:
            if fails:
                with pytest.raises(ValueError, match="mine"):
                    timed_turn(Prepared(run), clock)
            else:
                timed_turn(Prepared(run), clock)
            assert gc.isenabled() == enabled
            assert len(collections) == 1
        finally:
            (gc.enable if was_enabled else gc.disable)()

    def test_the_interpreter_s_settings_are_restored_after_a_turn(self, clock: FakeClock):
        """A variant that changes how the interpreter runs does not change it for the others."""

        def settings() -> list[object]:
            functions = [sys.getprofile(), sys.gettrace()]
            limits = [sys.getrecursionlimit(), sys.getswitchinterval(), gc.get_threshold()]
            return [*functions, *limits, gc.isenabled()]

        def run() -> None:
            sys.setrecursionlimit(sys.getrecursionlimit() + 500)
            sys.setswitchinterval(1e-6)
            gc.set_threshold(1)
            gc.enable()
            sys.setprofile(lambda *_: None)
            clock.advance(CALL)

        before = settings()
        timed_turn(Prepared(run), clock)
        assert settings() == before

    def test_a_variant_is_installed_around_each_of_its_turns_alone(self, clock: FakeClock):
        inside: list[str] = []
        turns = []

        @contextmanager
        def installed():
            assert inside == []
            inside.append("changing")
            yield
            inside.clear()

        def run_changing() -> None:
            assert inside == ["changing"]
            turns.append("changing")
            clock.advance(CALL)

        def run_other() -> None:
            assert inside == []
            clock.advance(CALL)

        prepared = {
            "reference": Prepared(run_other),
            "changing": Prepared(run_changing, installed=installed),
        }
        _, diary = run_sample(clock, prepared, least_blocks=3)
        assert inside == []
        assert len(turns) == diary.began.count("changing")

    def test_it_is_left_on_errors(self, clock: FakeClock):
        left = []

        @contextmanager
        def installed():
            try:
                yield
            finally:
                left.append(True)

        def run() -> None:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            timed_turn(Prepared(run, installed=installed), clock)
        assert left == [True]

    def test_installing_and_collecting_are_not_timed(
        self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ):
        @contextmanager
        def installed():
            clock.advance(100)
            yield
            clock.advance(100)

        monkeypatch.setattr(gc, "collect", lambda: clock.advance(1000))
        prepared = taking(clock, 0.25, installed=installed)
        assert timed_turn(prepared, clock, calls=2)[:2] == (0.25, 0.25)

    def test_wall_time_and_that_of_process_and_thread_are_kept_apart(self, clock: FakeClock):
        prepared = {"reference": Prepared(lambda: clock.advance(3.0, 0.5, 0.25))}
        assert timed_turn(prepared["reference"], clock)[:3] == (3.0, 0.5, 0.25)
        times = run_sample(clock, prepared, least_blocks=3)[0]["reference"]
        assert times.wall_s == [3.0] * 6
        assert times.cpu_s == [0.5] * 6
        assert times.thread_cpu_s == [0.25] * 6
        assert list(times.blocks.values()) == [[0.5, 0.5]] * 3

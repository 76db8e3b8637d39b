import gc
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, cycle, pairwise

import numpy as np
import pytest
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from harness.contract import Measured, Prepared
from harness.measuring.timing.sampling import NO_LIMITS, sample
from harness.measuring.timing.times import Times
from harness.measuring.timing.turns import timed_turn
from harness.measuring.timing.verdict import judge
from harness.measuring.timing.ways import Sample
from harness.model.settings import SamplingRule

CALL = 1.0  # seconds; long enough that no call is repeated to make a sample


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Make collecting garbage quick here, and count it."""
    collected: list[bool] = []

    def collect() -> int:
        collected.append(gc.isenabled())
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    return collected


def taking(clock: FakeClock, seconds: float | Callable[[], float], **options) -> Prepared:
    """A prepared variant whose call takes these seconds."""

    def run() -> str:
        clock.advance(seconds() if callable(seconds) else seconds)
        return "decision"

    return Prepared(run, **options)


class Diary:
    """What `sample` says about the turns: those that began, and those that counted."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[tuple[str, int]] = []

    def turn_begins(self, name: str) -> None:
        self.began.append(name)

    def block_ended(self, block: int, samples: Sequence[Sample]) -> None:
        self.ended += [(sample.name, block) for sample in samples]

    def block(self, number: int) -> list[str]:
        return [name for name, block in self.ended if block == number]


def run_sample(
    clock: FakeClock,
    prepared: dict[str, Prepared],
    reference: str | None = "reference",
    limits: Mapping[str, Sequence[float]] = NO_LIMITS,
    **rule,
) -> tuple[dict[str, Times], Diary]:
    diary = Diary()
    rule = {"seconds": 1e9, "warmup_seconds": 1e9, **rule}
    times = sample(
        prepared,
        reference,
        clock,
        SamplingRule(**rule),
        turn_begins=diary.turn_begins,
        block_ended=diary.block_ended,
        limits=limits,
    )
    return times, diary


def noisy(clock: FakeClock, mean: float, noise: float, seed: int) -> Prepared:
    rng = np.random.default_rng(seed)
    return taking(clock, lambda: mean * float(rng.lognormal(sigma=noise)))


def wavering(clock: FakeClock) -> Prepared:
    """Take half the reference's time and twice it by turns: no number of blocks decides that."""
    seconds = cycle([CALL / 2, CALL * 2, CALL * 2, CALL / 2, CALL / 2, CALL / 2, CALL * 2])
    return taking(clock, lambda: next(seconds))


def turn_seconds(clock: FakeClock, run: Callable[[], object]) -> tuple[list[float], Diary]:
    """Sample one variant; return the seconds of each turn that counted."""
    turns: list[float] = []

    @contextmanager
    def installed():
        clock.advance(1)  # slow to install, which is no part of the call
        began = clock.wall()
        yield
        turns.append(clock.wall() - began)

    prepared = {"reference": Prepared(run, installed=installed)}
    _, diary = run_sample(clock, prepared, least_blocks=3)
    return turns[-len(diary.ended) :], diary


class TestOrder:
    def test_each_block_runs_all_and_then_all_in_reverse(self, clock: FakeClock):
        names = ["reference", "a", "b", "c"]
        prepared = {name: noisy(clock, CALL, 0.5, seed) for seed, name in enumerate(names)}
        _, diary = run_sample(clock, prepared, least_blocks=6, most_blocks=6)
        orders = []
        for block in range(6):
            turns = diary.block(block)
            assert turns == turns[::-1]
            assert sorted(turns[: len(turns) // 2]) == sorted(set(turns))
            assert "reference" in turns
            orders.append(tuple(turns))
        assert len(set(orders)) > 2

    def test_the_order_depends_on_nothing_but_the_seed(self, clock: FakeClock):
        def orders(seed: int) -> list[tuple[str, int]]:
            prepared = {name: taking(clock, CALL) for name in ("reference", "a", "b", "c")}
            return run_sample(clock, prepared, None, least_blocks=4, seed=seed)[1].ended

        random.seed(1)
        first = orders(7)
        random.seed(2)
        assert orders(7) == first
        assert orders(8) != first

    @given(
        st.integers(0, 1000),
        st.floats(0.0001, 0.01),
        st.lists(st.floats(0.5, 50), min_size=1, max_size=4),
    )
    def test_a_linear_drift_cancels(self, seed: int, drift: float, costs: list[float]):
        clock = FakeClock()
        turns = count()

        def drifting(cost: float) -> Prepared:
            return taking(clock, lambda: cost * (1 + drift * next(turns)))

        prepared = {"reference": drifting(CALL)}
        prepared |= {f"v{index}": drifting(cost) for index, cost in enumerate(costs)}
        times, _ = run_sample(clock, prepared, least_blocks=3, most_blocks=3, seed=seed)
        for index, cost in enumerate(costs):
            ratio = times[f"v{index}"].ratio_to(times["reference"])
            assert ratio is not None
            # By the end, the last turn takes up to a third longer than the first.
            assert math.isclose(ratio.value, cost / CALL, rel_tol=drift**2 * len(prepared) ** 2)
            assert ratio.low <= cost / CALL <= ratio.high


class TestStopping:
    def test_decided_variants_do_not_run_again(self, clock: FakeClock):
        prepared = {
            "reference": taking(clock, CALL),
            "faster": taking(clock, CALL / 2),
            "slower": taking(clock, CALL * 2),
            "same": taking(clock, CALL * 1.001),
            "open": wavering(clock),
        }
        times, diary = run_sample(clock, prepared, least_blocks=3, most_blocks=5)
        assert all(set(diary.block(block)) == prepared.keys() for block in range(3))
        assert all(set(diary.block(block)) == {"reference", "open"} for block in (3, 4))
        assert diary.block(5) == []
        assert [len(times[name].blocks) for name in prepared] == [5, 3, 3, 3, 5]

    def test_each_look_has_a_tenth_more_to_see(
        self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ):
        looked: list[int] = []
        ratio_to = Times.ratio_to

        def noted(self: Times, *arguments):
            looked.append(len(self.blocks))
            return ratio_to(self, *arguments)

        monkeypatch.setattr(Times, "ratio_to", noted)
        prepared = {"reference": taking(clock, CALL), "open": wavering(clock)}
        run_sample(clock, prepared, least_blocks=3, most_blocks=60)
        looks = list(dict.fromkeys(looked))
        assert looks[:8] == [3, 4, 5, 6, 7, 8, 9, 10]
        assert len(looks) < 30
        assert all(later >= 1.1 * sooner for sooner, later in pairwise(looks[8:]))

    def test_a_difference_must_be_surer_than_what_is_reported(self, clock: FakeClock):
        # Three blocks of this are beyond the floor at 99 %, and not at 99.9 %.
        costs = cycle([1.5, 1.2, 1.5, 1.2, 1.35, 1.35])
        prepared = {"reference": taking(clock, CALL), "slower": taking(clock, lambda: next(costs))}
        times, _ = run_sample(clock, prepared, warmup_seconds=0, least_blocks=3)
        assert len(times["slower"].blocks) > 3
        ratio = times["slower"].ratio_to(times["reference"])
        assert ratio is not None
        assert judge(ratio) == "slower"

    @pytest.mark.parametrize(("seconds", "reason"), [(50, "50 s"), (1e9, "40 blocks")])
    def test_why_it_ended_undecided_is_told(self, clock: FakeClock, seconds: float, reason: str):
        prepared = {"reference": taking(clock, CALL), "open": wavering(clock)}
        times, _ = run_sample(clock, prepared, seconds=seconds, most_blocks=40)
        rule = SamplingRule(seconds=seconds, most_blocks=40)
        assert reason in rule.why_ended(len(times["open"].blocks))

    def test_all_decided_is_the_end(self, clock: FakeClock):
        prepared = {"reference": taking(clock, CALL), "faster": taking(clock, CALL / 2)}
        _, diary = run_sample(clock, prepared, least_blocks=3, most_blocks=12)
        assert {block for _, block in diary.ended} == {0, 1, 2}

    def test_a_ratio_near_a_goals_limit_runs_on(self, clock: FakeClock):
        prepared = {
            "reference": taking(clock, CALL),
            "near": noisy(clock, CALL / 2, 0.1, seed=4),
            "clear": noisy(clock, CALL / 2, 0.1, seed=2),
            "free": noisy(clock, CALL / 2, 0.1, seed=3),
        }
        limits = {"near": [0.9, 0.5], "clear": [0.9]}
        times, _ = run_sample(clock, prepared, limits=limits, least_blocks=3, most_blocks=8)
        assert [len(times[name].blocks) for name in prepared] == [8, 8, 3, 3]

    def test_a_single_variant_runs_the_least_blocks(self, clock: FakeClock):
        _, diary = run_sample(clock, {"reference": taking(clock, CALL)}, least_blocks=4)
        assert diary.ended == [("reference", block) for block in range(4) for _ in range(2)]

    def test_without_a_reference_all_run_the_least_blocks(self, clock: FakeClock):
        prepared = {"a": taking(clock, CALL), "b": noisy(clock, CALL, 0.6, seed=1)}
        times, diary = run_sample(clock, prepared, None, least_blocks=4)
        assert {block for _, block in diary.ended} == {0, 1, 2, 3}
        assert all(len(times[name].cpu_s) == 8 for name in prepared)

    def test_without_a_reference_one_block_will_do_where_there_is_no_time(self, clock: FakeClock):
        prepared = {"a": taking(clock, CALL), "b": taking(clock, 2 * CALL)}
        _, diary = run_sample(clock, prepared, None, seconds=CALL, least_blocks=4)
        assert {block for _, block in diary.ended} == {0}

    def test_it_stops_at_the_most_blocks(self, clock: FakeClock):
        prepared = {"reference": taking(clock, CALL), "open": wavering(clock)}
        times, _ = run_sample(clock, prepared, least_blocks=3, most_blocks=7)
        assert sorted(times["open"].blocks) == list(range(7))

    @pytest.mark.parametrize(("seconds", "blocks"), [(0.1, 2), (8.1, 2), (12.1, 3), (19.9, 4)])
    def test_no_block_begins_that_would_pass_the_time_but_the_second(
        self, clock: FakeClock, seconds: float, blocks: int
    ):
        prepared = {"reference": taking(clock, CALL), "same": taking(clock, CALL)}  # 4 s a block
        times, _ = run_sample(clock, prepared, least_blocks=6, seconds=seconds)
        assert len(times["reference"].blocks) == blocks

    def test_two_noisy_equal_variants_seldom_seem_to_differ(self):
        # Looking again and again whether the verdict is there must not make it come by chance.
        wrong, repeats = 0, 300
        rng = np.random.default_rng(0)
        for seed in range(repeats):
            clock = FakeClock()
            prepared = {
                name: taking(clock, lambda: float(rng.lognormal(sigma=0.4)))
                for name in ("reference", "equal")
            }
            times, _ = run_sample(clock, prepared, seed=seed, most_blocks=60)
            ratio = times["equal"].ratio_to(times["reference"])
            assert ratio is not None
            wrong += judge(ratio) in ("faster", "slower")
        assert wrong / repeats <= 0.04


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

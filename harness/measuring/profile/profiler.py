"""Profile the calls of variants with pyinstrument's sampler, in the turns that timing uses."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from time import perf_counter
from types import FrameType
from typing import Any

from pyinstrument.low_level.stat_profile import setstatprofile

from harness.contract import Prepared
from harness.contract.registry import Registry, load_registry
from harness.execution.worker import Failed, Report
from harness.measuring.jobs import Event, Listener, run_job, set_up, start_server_for
from harness.measuring.profile.flame_graph import BUILT_IN, NOTHING, Frame, Profile, Stack, Weight
from harness.measuring.request import AFTER_CALL, BUILDING, CALL, Job, Request
from harness.measuring.timing.turns import SystemClock, Turn, timed_turn
from harness.measuring.timing.ways import Timing
from harness.model.errors import ShardbenchError, UsageError
from harness.model.settings import Settings

_INTERVAL_SECONDS = 0.001
# A turn lasts about this long, by repeating short calls, or half the requested seconds if that is
# less. At least two turns are needed to see how much they vary.
_TURN_SECONDS = 0.5
_LEAST_TURNS = 2
_MOST_CALLS_OF_TURN = 100_000
# A call that takes longer than this needs no warm-up, and is profiled once.
_LONG_SECONDS = 5.0
# Profiling stops after this many times the requested seconds: a variant that uses up its input may
# need most of that time to make new inputs.
_MOST_TIMES_AS_LONG = 5
# The system may run another program for this long; the pause counts for a random frame.
_SLICE_SECONDS = 0.01
# The prefix that pybind11 puts before the name of every function.
_PYBIND = re.compile(r"^pybind11_detail_function_record_\w+\.")


def profile_variants(
    request: Request,
    settings: Settings,
    seconds: float,
    listen: Listener = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
) -> dict[str, Profile]:
    """Profile a request's variants, each for at least `seconds`; return the profiles by name.

    Raise ShardbenchError if a variant is not installed, fails, or is over budget, and UsageError if
    the problem cannot be built.
    """
    for name in request.variants:
        request.family.find(name).check_installed()
    start_server_for([request.family])
    outcome = run_job(
        run_profile,
        request.job(settings, registry),
        seconds,
        event=Event("profiling", request.variants[0]),
        listen=listen,
        together=len(request.variants),
    )
    if isinstance(outcome, Failed):
        if (outcome.stage.what, outcome.cause) == (BUILDING, "usage"):
            raise UsageError(outcome.reason)
        how = "is not applicable" if outcome.cause == "not applicable" else "failed"
        of_variant = f"'{outcome.subject}' {how}: " if outcome.subject else ""
        raise ShardbenchError(f"{of_variant}{outcome.reason.rstrip('.')}.")
    profiles: dict[str, Profile] = outcome
    return profiles


def run_profile(job: Job, seconds: float, report: Report) -> dict[str, Profile]:
    """Call variants in turns, with and without a profiler; return the profiles by name."""
    request = job.request()
    timing = set_up(job, request.family, request.build(), request.variants, report)
    return profile(request.family.name, timing, seconds)


def profile(family: str, timing: Timing, seconds: float) -> dict[str, Profile]:
    """Profile each prepared variant for at least `seconds`; return the profiles by name.

    The variants take turns (`timed_turn`), each once without the profiler and then once with it.
    Profiling slows dense Python code two- to threefold, so only shares of the time are meaningful.
    """
    turn_seconds = min(_TURN_SECONDS, seconds / _LEAST_TURNS)
    recordings: dict[str, _Recording] = {}
    for name, variant in timing.prepared.items():
        timing.begins(CALL, name)
        recordings[name] = _begin(variant, timing.clock, turn_seconds)
    order = list(recordings)
    while order:
        for name in order:
            timing.begins(CALL, name)
            recordings[name].take_turns()
            timing.begins(AFTER_CALL, name)
        # In reverse order, so that a drift of the machine's speed affects all variants alike.
        order = [name for name in reversed(order) if recordings[name].lacks(seconds)]
    return {name: recording.profile(family, name) for name, recording in recordings.items()}


@dataclass(slots=True)
class _Recording:
    """The turns of one variant so far, each of `calls` calls, without and with the profiler.

    A call that `is_long` is made once each. `sampled` has the seconds of all samples by stack, and
    `spent_s` is the total wall time of turns under the profiler.
    """

    prepared: Prepared[Any]
    clock: SystemClock
    calls: int = 1
    unprofiled: list[Turn] = field(default_factory=list)
    is_long: bool = False
    profiled: list[Turn] = field(default_factory=list)
    sampled: dict[Stack, Weight] = field(default_factory=dict)
    spent_s: float = 0.0

    def call(self) -> Any:
        """Run the variant; in a profile, all frames that this method calls are the variant's."""
        return self.prepared.run()

    def take_turns(self) -> None:
        """Time a turn of calls, then run another under the profiler, and add its samples."""
        if not self.is_long:
            turn = timed_turn(self.prepared, self.clock, self.calls)
            self.unprofiled.append(turn._replace(decision=None))
        sampled_at = perf_counter()

        def sample(frame: FrameType, event: str, arg: Any) -> None:
            nonlocal sampled_at
            now = perf_counter()
            seconds, sampled_at = now - sampled_at, now
            stack = _stack(frame, event, arg)
            if stack is not None:
                weight = Weight(seconds, seconds * min(seconds, _SLICE_SECONDS))
                self.sampled[stack] = self.sampled.get(stack, NOTHING).plus(weight)

        started = self.clock.wall()
        # The profiler runs throughout the turn: if it ran for each call, a short call would often
        # end before the first sample.
        setstatprofile(sample, _INTERVAL_SECONDS)
        try:
            turn = timed_turn(replace(self.prepared, run=self.call), self.clock, self.calls)
        finally:
            setstatprofile(None)
        self.spent_s += self.clock.wall() - started
        self.profiled.append(turn._replace(decision=None))

    def lacks(self, seconds: float) -> bool:
        """Return whether more turns are needed to profile for `seconds`."""
        if len(self.profiled) < _LEAST_TURNS:
            return not self.is_long
        in_calls = math.fsum(turn.wall_s for turn in self.profiled) * self.calls
        return in_calls < seconds and self.spent_s < _MOST_TIMES_AS_LONG * seconds

    def profile(self, family: str, variant: str) -> Profile:
        """Return the profile: the samples by stack, in seconds of one call."""
        turns_s = [turn.wall_s for turn in self.profiled]
        per_call = fmean(turns_s)
        # 1. The CPU time of other threads and processes, all of it if the call is timed there.
        turns = [*self.unprofiled, *self.profiled]
        own_s = math.fsum(turn.thread_cpu_s or 0.0 for turn in turns)
        all_s = math.fsum(turn.cpu_s for turn in turns)
        is_elsewhere = self.profiled[0].thread_cpu_s is None
        unseen = max(0.0, 1 - own_s / all_s) if all_s > 0 and not is_elsewhere else 0.0
        # 2. The samples miss the time between the last one and the end of the call, so they are
        # scaled to the measured time, if that was measured here.
        sampled_s = math.fsum(weight.seconds for weight in self.sampled.values())
        scale = 1 / (self.calls * len(self.profiled))
        if sampled_s > 0 and not is_elsewhere:
            scale = per_call / sampled_s
        stacks = {
            stack: Weight(weight.seconds * scale, weight.variance * scale**2)
            for stack, weight in self.sampled.items()
        }
        # 3. The standard error of the mean of turns, relative to the mean.
        has_drift = len(turns_s) > 1 and per_call > 0
        return Profile(
            family=family,
            variant=variant,
            stacks=stacks or {(): Weight(per_call, per_call**2)},
            calls=self.calls * len(self.profiled),
            unprofiled_s=fmean(turn.wall_s for turn in self.unprofiled),
            drift=stdev(turns_s) / math.sqrt(len(turns_s)) / per_call if has_drift else 0.0,
            unseen=1.0 if is_elsewhere else unseen,
        )


def _begin(prepared: Prepared[Any], clock: SystemClock, turn_seconds: float) -> _Recording:
    """Call once to warm up and, unless that took long, again to set the calls of a turn."""
    turn = timed_turn(prepared, clock)
    lasts = turn.lasts_s
    if lasts <= _LONG_SECONDS:
        started = clock.wall()
        turn = timed_turn(prepared, clock)
        lasts = clock.wall() - started - turn.install_s  # with what `renew` takes
    if turn.lasts_s > _LONG_SECONDS:
        return _Recording(prepared, clock, 1, [turn._replace(decision=None)], is_long=True)
    calls = math.ceil(turn_seconds / max(lasts, turn_seconds / _MOST_CALLS_OF_TURN))
    return _Recording(prepared, clock, calls)


_CALL = _Recording.call.__code__


def _stack(frame: FrameType | None, event: str, arg: Any) -> Stack | None:
    """Return the sampled stack below the variant's `run`; None outside of a call.

    `event` and `arg` are those of `sys.setprofile`. The sampled time precedes the event.
    """
    frames: list[Frame] = []
    if frame is not None and event == "call":
        frame = frame.f_back  # the time is its caller's
    elif event in ("c_return", "c_exception"):
        name = getattr(arg, "__qualname__", arg.__name__)
        frames.append(Frame(BUILT_IN, _PYBIND.sub("", name)))
    while frame is not None and frame.f_code is not _CALL:
        name = frame.f_code.co_qualname.replace(".<locals>.", ".")
        frames.append(Frame(str(frame.f_globals.get("__name__", "")), name))
        frame = frame.f_back
    # The outermost is `run` itself, which is the root.
    return None if frame is None else tuple(frames[-2::-1])

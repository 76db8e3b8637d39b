"""Profile the calls of variants with pyinstrument, in the same turns that timing uses."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from pyinstrument import Profiler, processors
from pyinstrument.frame_info import frame_info_get_identifier
from pyinstrument.renderers import ConsoleRenderer, HTMLRenderer, SpeedscopeRenderer
from pyinstrument.session import Session

from harness.contract import Measured, Prepared
from harness.contract.registry import Registry, load_registry
from harness.execution.worker import Failed, Report
from harness.measuring.jobs import (
    Event,
    Listener,
    OverBudget,
    observer_of,
    run_job,
    start_server_for,
)
from harness.measuring.profile.flame_graph import NOTHING, Profile, Profiled, Stack, Weight
from harness.measuring.profile.frame_names import FrameNames
from harness.measuring.request import AFTER_CALL, BUILDING, CALL, Job, Request
from harness.measuring.timing.turns import Clock, SystemClock, Turn, timed_turn
from harness.measuring.timing.ways import Observer
from harness.model.errors import ShardbenchError, UsageError
from harness.model.settings import Settings

_INTERVAL_SECONDS = 0.001
# A turn lasts about this long, by repeating short calls, or half the requested seconds if that is
# less. At least two turns are needed to see how much they vary.
_TURN_SECONDS = 0.5
_LEAST_TURNS = 2
_MOST_TURNS = 1000
_MOST_CALLS_OF_TURN = 100_000
# A call that takes longer than this needs no warm-up, and is profiled once.
_LONG_SECONDS = 5.0
# Profiling stops after this many times the requested seconds: a variant that uses up its input may
# need most of that time to make new inputs.
_MOST_TIMES_AS_LONG = 5
# The system may run another program for this long; the pause counts for a random frame.
_SLICE_SECONDS = 0.01
# Frames below this share of the whole are left out of the text tree.
_SMALLEST_SHARE = 0.02
_WEB_FONTS = re.compile(r"https://fonts\.googleapis\.com/[^\"]*")


def profile_variants(
    request: Request,
    settings: Settings,
    seconds: float,
    listen: Listener = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
) -> dict[str, Profiled]:
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
    if isinstance(outcome, OverBudget):
        raise ShardbenchError(f"'{outcome.subject}' was stopped after {settings.budget:g} s.")
    if isinstance(outcome, Failed):
        if (outcome.stage.what, outcome.cause) == (BUILDING, "usage"):
            raise UsageError(outcome.reason)
        how = "is not applicable" if outcome.cause == "not applicable" else "failed"
        of_variant = f"'{outcome.subject}' {how}: " if outcome.subject else ""
        raise ShardbenchError(of_variant + outcome.reason)
    profiled: dict[str, Profiled] = outcome
    return profiled


def run_profile(job: Job, seconds: float, report: Report) -> dict[str, Profiled]:
    """Call variants in turns, with and without a profiler; return the profiles by name."""
    request = job.request()
    problem = request.build()
    prepared = job.prepare(request, problem, request.variants, report)
    return profile(request.family.name, prepared, SystemClock(), seconds, observer_of(job, report))


def profile(
    family: str,
    prepared: Mapping[str, Prepared[Any]],
    clock: Clock,
    seconds: float,
    observer: Observer | None = None,
) -> dict[str, Profiled]:
    """Profile each prepared variant for at least `seconds`; return the profiles by name.

    The variants take turns (`timed_turn`), each once without the profiler and then once with it.
    Profiling slows dense Python code two- to threefold, so only shares of the time are meaningful.
    """
    observer = observer or Observer()
    turn_seconds = min(_TURN_SECONDS, seconds / _LEAST_TURNS)
    recordings = {
        name: _Recording(variant, clock, turn_seconds) for name, variant in prepared.items()
    }

    def in_turn(name: str, step: Callable[[], None]) -> None:
        observer.begins(CALL, name)
        step()
        observer.begins(AFTER_CALL, name)

    for name, recording in recordings.items():
        in_turn(name, recording.warm_up)
    order = list(recordings)
    while order:
        for name in order:
            if not recordings[name].is_long:
                in_turn(name, recordings[name].take_turn)
            in_turn(name, recordings[name].take_profiled_turn)
        # In reverse order, so that a drift of the machine's speed affects all variants alike.
        order = [name for name in reversed(order) if recordings[name].lacks(seconds)]
    names = FrameNames()
    return {
        name: Profiled(recording.profile(family, name, names), recording.files(family, name, names))
        for name, recording in recordings.items()
    }


@dataclass(slots=True)
class _Recording:
    """The turns of one variant so far.

    `unprofiled_s` and `profiled_s` (wall seconds) and `cpu_s` (CPU seconds, profiled) have the mean
    time of a call for each turn. `records` are pyinstrument's samples: a stack from the call on,
    and the seconds since the previous sample. `of_process_s` and `of_thread_s` are the CPU seconds
    of all turns, in all threads and in the profiled one. `spent_s` is the total wall time of turns
    under the profiler, and `began_at` the time of day, as a Unix time, when they began.
    """

    prepared: Prepared[Any]
    clock: Clock
    turn_seconds: float
    calls_of_turn: int = 1
    is_long: bool = False
    is_elsewhere: bool = False
    of_process_s: float = 0.0
    of_thread_s: float = 0.0
    unprofiled_s: list[float] = field(default_factory=list)
    profiled_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    began_at: float = 0.0
    records: list[tuple[list[str], float]] = field(default_factory=list)

    def warm_up(self) -> None:
        """Call once to warm up and, unless that took long, again to set the calls of a turn."""
        for _ in range(2):
            with self.prepared.installed():
                started = self.clock.wall()
                self.prepared.begin()
                called = self.clock.wall()
                self.is_elsewhere = isinstance(self.call(), Measured)
                ended = self.clock.wall()
            if ended - called > _LONG_SECONDS:
                self.is_long = True
                self.unprofiled_s.append(ended - called)
                return
        lasts = max(ended - started, self.turn_seconds / _MOST_CALLS_OF_TURN)
        self.calls_of_turn = math.ceil(self.turn_seconds / lasts)

    def call(self) -> Any:
        """Run the variant; in a profile, all frames that this method calls are the variant's."""
        return self.prepared.run()

    def take_turn(self) -> None:
        """Time a turn of calls without the profiler."""
        turn = timed_turn(self.prepared, self.clock, self.calls_of_turn)
        self.unprofiled_s.append(turn.wall_s)
        self._count_threads(turn)

    def take_profiled_turn(self) -> None:
        """Run a turn of calls under the profiler, and store its records."""
        profiler = Profiler(interval=_INTERVAL_SECONDS, async_mode="disabled")
        started = self.clock.wall()
        # The profiler runs throughout the turn: if it ran for each call, a short call would often
        # end before the first record.
        profiler.start()
        try:
            turn = timed_turn(replace(self.prepared, run=self.call), self.clock, self.calls_of_turn)
        finally:
            session = profiler.stop()
        self.spent_s += self.clock.wall() - started
        self.began_at = self.began_at or session.start_time
        self.profiled_s.append(turn.wall_s)
        self.cpu_s.append(turn.cpu_s)
        self._count_threads(turn)
        for stack, seconds in session.frame_records:
            identifiers = [frame_info_get_identifier(info) for info in stack]
            if _CALL in identifiers:
                self.records.append((stack[identifiers.index(_CALL) + 1 :], seconds))

    def _count_threads(self, turn: Turn) -> None:
        if turn.thread_cpu_s is not None:
            self.of_process_s += turn.cpu_s
            self.of_thread_s += turn.thread_cpu_s

    def _unseen(self) -> float:
        """Return the share of the CPU time that other threads and processes took."""
        if self.is_elsewhere or not self.of_process_s > 0:
            return float(self.is_elsewhere)
        return max(0.0, 1 - self.of_thread_s / self.of_process_s)

    def lacks(self, seconds: float) -> bool:
        """Return whether more turns are needed to profile for `seconds`."""
        turns = len(self.profiled_s)
        if turns < _LEAST_TURNS:
            return not self.is_long
        in_calls = math.fsum(self.profiled_s) * self.calls_of_turn
        return (
            turns < _MOST_TURNS
            and in_calls < seconds
            and self.spent_s < _MOST_TIMES_AS_LONG * seconds
        )

    def profile(self, family: str, variant: str, names: FrameNames) -> Profile:
        """Return the profile: the records summed by stack, in seconds of one call."""
        calls = self.calls_of_turn * len(self.profiled_s)
        sampled = math.fsum(seconds for _, seconds in self.records) / calls
        per_call = fmean(self.profiled_s)
        # The records miss the time between the last one and the end of the call, so they are scaled
        # to the measured time; but not if the call is timed in another process.
        scale = per_call / sampled if sampled > 0 and not self.is_elsewhere else 1.0
        stacks: dict[Stack, Weight] = {} if self.records else {(): Weight(per_call, per_call**2)}
        for infos, seconds in self.records:
            # infos[0] is the variant's `run` function, which is the root.
            stack = tuple(names.frame(info) for info in infos[1:])
            weight = Weight(
                seconds * scale / calls,
                seconds * min(seconds, _SLICE_SECONDS) * (scale / calls) ** 2,
            )
            stacks[stack] = stacks.get(stack, NOTHING).plus(weight)
        return Profile(
            family=family,
            variant=variant,
            stacks=stacks,
            calls=calls,
            unprofiled_s=fmean(self.unprofiled_s),
            drift=_relative_error(self.profiled_s),
            unseen=self._unseen(),
        )

    def files(self, family: str, variant: str, names: FrameNames) -> dict[str, str]:
        """Return the texts of pyinstrument's report files, by suffix."""
        calls = self.calls_of_turn * len(self.profiled_s)
        root = f"{family}/{variant}\x00<call>\x000"
        records = [
            ([root, *map(names.without_path, infos[1:])], seconds)
            for infos, seconds in self.records
        ]
        # A new session, because the profiler's own session contains paths of this machine.
        session = Session(
            frame_records=records,
            start_time=self.began_at,
            duration=math.fsum(self.profiled_s) * self.calls_of_turn,
            min_interval=_INTERVAL_SECONDS,
            max_interval=_INTERVAL_SECONDS,
            sample_count=len(records),
            start_call_stack=[root],
            target_description=f"{family}/{variant}, {calls} call{'' if calls == 1 else 's'}",
            cpu_time=math.fsum(self.cpu_s) * self.calls_of_turn,
            sys_path=[],
            sys_prefixes=[],
        )
        tree = ConsoleRenderer(
            unicode=True, processor_options={"filter_threshold": _SMALLEST_SHARE}
        )
        # Show the frames of libraries too, because planners are libraries.
        tree.processors.remove(processors.group_library_frames_processor)
        return {
            # pyinstrument's page loads two fonts from the network; it works without them.
            "html": _WEB_FONTS.sub("data:text/css,", HTMLRenderer().render(session)),
            "speedscope.json": SpeedscopeRenderer().render(session),
            "txt": tree.render(session),
        }


_CODE_OF_CALL = _Recording.call.__code__
_CALL = f"{_CODE_OF_CALL.co_name}\x00{_CODE_OF_CALL.co_filename}\x00{_CODE_OF_CALL.co_firstlineno}"


def _relative_error(turns_s: list[float]) -> float:
    """Return the standard error of the mean of turns, relative to the mean; 0 for one turn."""
    mean = fmean(turns_s)
    if len(turns_s) < 2 or not mean > 0:
        return 0.0
    return stdev(turns_s) / math.sqrt(len(turns_s)) / mean

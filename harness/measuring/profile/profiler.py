"""Profile the calls of variants with pyinstrument, in the same turns that timing uses."""

import math
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from types import CodeType
from typing import Any

from pyinstrument import Profiler, processors
from pyinstrument.frame_info import ATTRIBUTES_SEP, IDENTIFIER_SEP, frame_info_get_identifier
from pyinstrument.renderers import ConsoleRenderer, HTMLRenderer, SpeedscopeRenderer
from pyinstrument.session import Session

from harness.contract import Prepared
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
from harness.measuring.profile.flame_graph import (
    BUILT_IN,
    NOTHING,
    Frame,
    Profile,
    Profiled,
    Stack,
    Weight,
)
from harness.measuring.request import AFTER_CALL, BUILDING, CALL, Job, Request
from harness.measuring.timing.turns import SystemClock, Turn, timed_turn
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
    clock: SystemClock,
    seconds: float,
    observer: Observer | None = None,
) -> dict[str, Profiled]:
    """Profile each prepared variant for at least `seconds`; return the profiles by name.

    The variants take turns (`timed_turn`), each once without the profiler and then once with it.
    Profiling slows dense Python code two- to threefold, so only shares of the time are meaningful.
    """
    begins = (observer or Observer()).begins
    turn_seconds = min(_TURN_SECONDS, seconds / _LEAST_TURNS)
    recordings: dict[str, _Recording] = {}
    for name, variant in prepared.items():
        begins(CALL, name)
        recordings[name] = _Recording.begin(variant, clock, turn_seconds)
    order = list(recordings)
    while order:
        for name in order:
            begins(CALL, name)
            recordings[name].take_turns()
            begins(AFTER_CALL, name)
        # In reverse order, so that a drift of the machine's speed affects all variants alike.
        order = [name for name in reversed(order) if recordings[name].lacks(seconds)]
    names = FrameNames()
    return {
        name: Profiled(recording.profile(family, name, names), recording.files(family, name, names))
        for name, recording in recordings.items()
    }


@dataclass(slots=True)
class _Recording:
    """The turns of one variant so far, each of `calls` calls, without and with the profiler.

    A call that `is_long` is made once each. `records` are pyinstrument's samples: a stack from the
    call on, and the seconds since the previous sample. `spent_s` is the total wall time of turns
    under the profiler, and `began_at` the time of day, as a Unix time, when they began.
    """

    prepared: Prepared[Any]
    clock: SystemClock
    calls: int
    is_long: bool
    unprofiled: list[Turn]
    profiled: list[Turn] = field(default_factory=list)
    spent_s: float = 0.0
    began_at: float = 0.0
    records: list[tuple[list[str], float]] = field(default_factory=list)

    @classmethod
    def begin(
        cls, prepared: Prepared[Any], clock: SystemClock, turn_seconds: float
    ) -> "_Recording":
        """Call once to warm up and, unless that took long, again to set the calls of a turn."""
        turn = timed_turn(prepared, clock)
        lasts = turn.lasts_s
        if lasts <= _LONG_SECONDS:
            started = clock.wall()
            turn = timed_turn(prepared, clock)
            lasts = clock.wall() - started - turn.install_s  # with what `renew` takes
        if turn.lasts_s > _LONG_SECONDS:
            return cls(prepared, clock, 1, True, [turn._replace(decision=None)])
        calls = math.ceil(turn_seconds / max(lasts, turn_seconds / _MOST_CALLS_OF_TURN))
        return cls(prepared, clock, calls, False, [])

    def call(self) -> Any:
        """Run the variant; in a profile, all frames that this method calls are the variant's."""
        return self.prepared.run()

    def take_turns(self) -> None:
        """Time a turn of calls, then run another under the profiler, and store its records."""
        if not self.is_long:
            turn = timed_turn(self.prepared, self.clock, self.calls)
            self.unprofiled.append(turn._replace(decision=None))
        profiler = Profiler(interval=_INTERVAL_SECONDS, async_mode="disabled")
        started = self.clock.wall()
        # The profiler runs throughout the turn: if it ran for each call, a short call would often
        # end before the first record.
        profiler.start()
        try:
            turn = timed_turn(replace(self.prepared, run=self.call), self.clock, self.calls)
        finally:
            session = profiler.stop()
        self.spent_s += self.clock.wall() - started
        self.began_at = self.began_at or session.start_time
        self.profiled.append(turn._replace(decision=None))
        for stack, seconds in session.frame_records:
            identifiers = [frame_info_get_identifier(info) for info in stack]
            if _CALL in identifiers:
                self.records.append((stack[identifiers.index(_CALL) + 1 :], seconds))

    def lacks(self, seconds: float) -> bool:
        """Return whether more turns are needed to profile for `seconds`."""
        turns = len(self.profiled)
        if turns < _LEAST_TURNS:
            return not self.is_long
        in_calls = math.fsum(turn.wall_s for turn in self.profiled) * self.calls
        return (
            turns < _MOST_TURNS
            and in_calls < seconds
            and self.spent_s < _MOST_TIMES_AS_LONG * seconds
        )

    def profile(self, family: str, variant: str, names: "FrameNames") -> Profile:
        """Return the profile: the records summed by stack, in seconds of one call."""
        calls = self.calls * len(self.profiled)
        sampled = math.fsum(seconds for _, seconds in self.records) / calls
        turns_s = [turn.wall_s for turn in self.profiled]
        per_call = fmean(turns_s)
        # 1. The CPU time of other threads and processes, all of it if the call is timed there.
        turns = [*self.unprofiled, *self.profiled]
        own_s = math.fsum(turn.thread_cpu_s or 0.0 for turn in turns)
        all_s = math.fsum(turn.cpu_s for turn in turns)
        is_elsewhere = self.profiled[0].thread_cpu_s is None
        unseen = max(0.0, 1 - own_s / all_s) if all_s > 0 and not is_elsewhere else 0.0
        # 2. The records miss the time between the last one and the end of the call, so they are
        # scaled to the measured time, if that was measured here.
        scale = per_call / sampled if sampled > 0 and not is_elsewhere else 1.0
        stacks: dict[Stack, Weight] = {} if self.records else {(): Weight(per_call, per_call**2)}
        for infos, seconds in self.records:
            # infos[0] is the variant's `run` function, which is the root.
            stack = tuple(names.frame(info) for info in infos[1:])
            weight = Weight(
                seconds * scale / calls,
                seconds * min(seconds, _SLICE_SECONDS) * (scale / calls) ** 2,
            )
            stacks[stack] = stacks.get(stack, NOTHING).plus(weight)
        # 3. The standard error of the mean of turns, relative to the mean.
        has_drift = len(turns_s) > 1 and per_call > 0
        return Profile(
            family=family,
            variant=variant,
            stacks=stacks,
            calls=calls,
            unprofiled_s=fmean(turn.wall_s for turn in self.unprofiled),
            drift=stdev(turns_s) / math.sqrt(len(turns_s)) / per_call if has_drift else 0.0,
            unseen=1.0 if is_elsewhere else unseen,
        )

    def files(self, family: str, variant: str, names: "FrameNames") -> dict[str, str]:
        """Return the texts of pyinstrument's report files, by suffix."""
        calls = self.calls * len(self.profiled)
        root = f"{family}/{variant}\x00<call>\x000"
        records = [
            ([root, *map(names.without_path, infos[1:])], seconds)
            for infos, seconds in self.records
        ]
        # A new session, because the profiler's own session contains paths of this machine.
        session = Session(
            frame_records=records,
            start_time=self.began_at,
            duration=math.fsum(turn.wall_s for turn in self.profiled) * self.calls,
            min_interval=_INTERVAL_SECONDS,
            max_interval=_INTERVAL_SECONDS,
            sample_count=len(records),
            start_call_stack=[root],
            target_description=f"{family}/{variant}, {calls} call{'' if calls == 1 else 's'}",
            cpu_time=math.fsum(turn.cpu_s for turn in self.profiled) * self.calls,
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


_CLASS_NAME = "c"
# The prefix that pybind11 puts before the name of every function.
_PYBIND = re.compile(r"^pybind11_detail_function_record_\w+\.")
_OF_THIS_PROCESS = ("__main__", "__mp_main__")


class FrameNames:
    """Find the names of frames; modules that are imported later are not found."""

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(file, str) and name not in _OF_THIS_PROCESS:
                self._modules.setdefault(file, name)
        self.frame = cache(self._frame)
        self.without_path = cache(self._without_path)

    def _frame(self, info: str) -> Frame:
        """Return the frame for `info`, pyinstrument's text for a frame."""
        name, file, line, class_name = _parts(info)
        module = BUILT_IN
        if file != BUILT_IN:
            module = self._module(file)
            own = f"{class_name}.{name}" if class_name else name
            name = _qualified_names(file).get((line, name), own)
        return Frame(_text(module), _text(name.replace(".<locals>.", ".")))

    def _without_path(self, info: str) -> str:
        """Return `info` with the path shortened to begin at the package, without folders above."""
        name, file, line, class_name = _parts(info)
        if not file.startswith("<"):
            path = Path(file)
            depth = self._module(file).count(".") + (2 if path.stem == "__init__" else 1)
            file = "/".join(path.parts[-depth:])
        attributes = f"{ATTRIBUTES_SEP}{_CLASS_NAME}{class_name}" if class_name else ""
        return _text(IDENTIFIER_SEP.join((name, file, str(line))) + attributes)

    def _module(self, file: str) -> str:
        if file.startswith("<"):
            return file.removeprefix("<frozen ").removesuffix(">") if "frozen" in file else file
        if file in self._modules:
            return self._modules[file]
        path = Path(file)
        for root in sorted(filter(None, sys.path), key=len, reverse=True):
            if path.is_relative_to(root):
                return ".".join(path.relative_to(root).with_suffix("").parts)
        return path.stem


def _parts(info: str) -> tuple[str, str, int, str]:
    """Split pyinstrument's text into function, file, first line, and class (empty for none)."""
    identifier, *attributes = info.split(ATTRIBUTES_SEP)
    name, file, line = [*identifier.split(IDENTIFIER_SEP), "", ""][:3]
    classes = [text[1:] for text in attributes if text.startswith(_CLASS_NAME)]
    number = int(line) if line.isdecimal() else 0
    return _PYBIND.sub("", name), file, number, classes[0] if classes else ""


@cache
def _qualified_names(file: str) -> dict[tuple[int, str], str]:
    """Return the qualified name of each function in a file, by first line and name.

    The profiler only knows the class of the object that a method runs on, not the class that
    defines the method, so an inherited method would have a different name in each subclass.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            pending = [compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[tuple[int, str], str] = {}
    while pending:
        for code in pending.pop().co_consts:
            if isinstance(code, CodeType):
                found[code.co_firstlineno, code.co_name] = code.co_qualname
                pending.append(code)
    return found


def _text(name: str) -> str:
    """Return a name that can be encoded as UTF-8: a path may contain bytes that are not."""
    return name.encode("utf-8", "replace").decode("utf-8")

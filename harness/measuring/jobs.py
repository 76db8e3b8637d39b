"""The jobs of child processes: check a variant, time variants, and how this process runs them."""

import gc
import numbers
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as with_fields

from harness.contract import Family, Measured, Moving, Progress, Recorder
from harness.contract.abilities import load
from harness.contract.recorder import observed_call
from harness.contract.registry import family_modules
from harness.contract.variants import Variant
from harness.execution.child import run
from harness.execution.server import start_server
from harness.execution.usage import begin_peak, peak
from harness.execution.worker import Failed, Note, Report, Stage
from harness.measuring.request import AFTER_CALL, BOUND, BUILDING, CALL, SET_UP, TOGETHER, Job
from harness.measuring.timing.sampling import SamplingRequest, Times, sample
from harness.measuring.timing.turns import SystemClock
from harness.measuring.timing.ways import Timing
from harness.model.cell import FrontPoint, RankTable
from harness.model.declared import LEAST
from harness.model.errors import RegistryError, ShardbenchError
from harness.model.machine import default_memory_gib
from harness.model.quality import find_bound

CHECKING = "checking"
_REPORT_SECONDS = 0.2
_INTERVALS = "scipy.special"  # computing the interval of a ratio needs it


@dataclass(frozen=True, slots=True)
class Event:
    """A stage of a measurement and its progress, for a progress display.

    `step` of `steps` counts variants while checking; while timing, `step` counts blocks, and
    `steps` is 0. `doing` is the current part of a check, and `at_most_s` the limit of a call that
    is checked, or of all timing, in seconds.
    """

    stage: str
    variant: str
    step: int = 1
    steps: int = 1
    progress: Progress | None = None
    doing: str = ""
    at_most_s: float | None = None


Listener = Callable[[Event], None]


@dataclass(slots=True)
class Pace:
    """The first and last progress of one step of a call; both have `elapsed_s`."""

    first: Progress | None = None
    last: Progress | None = None

    def report(self, progress: Progress) -> None:
        """Record a progress report; start over if its unit changes or its count goes down."""
        last, self.last = self.last, progress
        if last is None or last.unit != progress.unit or last.done > progress.done:
            self.first = progress

    def projection(self) -> float | None:
        """Return the projected seconds of the whole call, at the pace from `first` to `last`.

        None without two reports. If more steps follow the reported one, it is a lower bound.
        """
        first, last = self.first, self.last
        if first is None or last is None or last.total is None or last.done <= first.done:
            return None
        start_s, end_s = first.elapsed_s or 0.0, last.elapsed_s or 0.0
        pace = (end_s - start_s) / (last.done - first.done)
        return end_s + pace * max(0, last.total - last.done)


@dataclass(frozen=True)
class OverBudget(Failed):
    """A call that was stopped because it was over its budget; `projection_s` is of the whole call.

    `peak_memory_bytes` is a lower bound on the peak of the whole call.
    """

    projection_s: float | None = None
    progress: Progress | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one checked call; a cell has its figures, too.

    The times of an observed call include the observer's work. `peak_memory_bytes` is the peak
    resident memory during the call, and `memory_before_bytes` the resident memory just before; both
    are None for a call in another process. `front` has better decisions, each with the GiB that
    must move to change this decision into it. `facts` are those of the problem.
    """

    fingerprint: str
    quality: Mapping[str, float]
    counters: Mapping[str, int]
    phases: Mapping[str, float]
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int | None
    memory_before_bytes: int | None
    ranks: RankTable | None = None
    front: tuple[FrontPoint, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def check(
    family: Family[Any, Any],
    variant: Variant[Any, Any],
    problem: Any,
    clock: SystemClock,
    begins: Callable[[str, Recorder], None] = lambda stage, recorder: None,
    with_front: bool = False,
    observed: bool = True,
) -> Checked:
    """Call a variant once, under the family's observer unless that is not wanted, and check it.

    `begins` is called just before and after the call, with the stage. `with_front` adds
    `Checked.front`.

    Raises:
        InfeasibleDecision: the decision cannot be deployed, e.g. exceeds memory.
        RegistryError: the variant or the family breaks the contract.
    """
    prepared = variant.prepared(problem)
    work = family.work_on(problem)
    try:
        recorder = Recorder()
        with ExitStack() as stack:
            if observed:
                stack.enter_context(observed_call())
                stack.enter_context(work.observe(recorder))
            stack.enter_context(prepared.installed())
            prepared.begin()
            if not observed:
                gc.collect()  # else what set-up allocated may start a collection in the call
            before: int | None = begin_peak()
            begins(CALL, recorder)
            wall_s, cpu_s = clock.wall(), clock.cpu()
            with recorder.call():
                result = prepared.run()
            wall_s, cpu_s = clock.wall() - wall_s, clock.cpu() - cpu_s
            reached: int | None = peak()
            begins(AFTER_CALL, recorder)
        # 1. What was measured: here, or by another process.
        counters, phases = {}, {}
        if observed:
            counters = {known.name: recorder.counters[known.name] for known in family.counters}
            phases = dict.fromkeys(family.phases, 0.0) | recorder.phases
        if isinstance(result, Measured):
            counters = {name: int(amount) for name, amount in result.counters.items()}
            phases = {name: float(seconds) for name, seconds in result.phases.items()}
            wall_s, cpu_s = float(result.wall_s), float(result.cpu_s)
            before = reached = None
            result = result.decision
        # 2. The decision: it must be valid, and no better than a proven bound.
        work.validate(problem, result)
        quality = dict(work.quality(problem, result))
        of_variant = f"of '{family.name}/{variant.name}' is"
        for name, value in quality.items():
            # NaN is not at most anything.
            if not (isinstance(value, numbers.Real) and abs(value) <= 1 / LEAST):
                said = str(value)[:40]
                raise RegistryError(f"Quality '{name}' {of_variant} {said}, not a number.")
            quality[name] = float(value)
        bound = find_bound(family.qualities)
        if bound and bound.is_passed(quality):
            raise RegistryError(
                f"Quality '{bound.quality}' {of_variant} {quality[bound.quality]:g}, better than "
                f"its proven bound '{bound.name}' of {quality[bound.name]:g}."
            )
        planning = load(family.abilities.planning)
        moving = planning.moving if planning and with_front else None
        return Checked(
            work.fingerprint(result),
            quality,
            counters,
            phases,
            wall_s,
            cpu_s,
            reached,
            before,
            planning.ranks(problem, result) if planning else None,
            tuple(_front(family, moving, problem, result)),
            dict(work.facts(problem)),
        )
    finally:
        prepared.close()


def _front(
    family: Family[Any, Any], moving: Moving[Any, Any] | None, problem: Any, decision: Any
) -> Iterator[FrontPoint]:
    """Yield the move-budget front of a decision; nothing if finding it takes more than seconds."""
    near = moving.near(problem, decision) if moving else None
    if moving is None or near is None:
        return
    first, bound = family.qualities[0].name, find_bound(family.qualities)
    for within, made in moving.front(near):
        family.work.validate(within, made)
        quality = family.work.quality(within, made)
        least = quality[bound.name] if bound else None
        yield FrontPoint(moving.moved(within, made), quality[first], least)


def start_server_for(families: Iterable[Family[Any, Any]]) -> None:
    """Start the fork server with the modules that all jobs, and these families, import."""
    wanted = [
        module for family in families for module in (*family_modules(family.name), *family.modules)
    ]
    start_server((__name__, _INTERVALS, *dict.fromkeys(wanted)))


def run_job(
    work: Callable[..., Any],
    job: Job,
    *arguments: Any,
    event: Event,
    listen: Listener,
    together: int = 1,
) -> Any | Failed:
    """Run a job's work in a child process; return its result, or the reason for having none.

    `listen` is called with the event, and again each time that it changes. The child process has
    `together` variants at a time, and the memory of each, as far as the machine has that much.
    """
    pace, peak_bytes = Pace(), None

    def take(message: Stage | tuple[Progress | None, int]) -> None:
        nonlocal peak_bytes, event
        before = event
        if not isinstance(message, Stage):
            progress, peak_bytes = message
            if progress is not None:
                pace.report(progress)
                event = replace(event, progress=progress)
        elif event.stage == CHECKING:
            event = replace(event, doing=message.what, progress=None)
        elif message.what == TOGETHER:
            event = replace(event, step=event.step + 1)
        if event is not before:
            listen(event)

    listen(event)
    gib = job.settings.memory_gib
    memory_gib = max(gib, min(gib * together, default_memory_gib()))
    first = job.stage(BUILDING)
    outcome = run(work, job, *arguments, first=first, listen=take, memory_gib=memory_gib)
    if not isinstance(outcome, Failed):
        return outcome
    if (outcome.cause, outcome.stage.what) != ("time", CALL):
        return outcome
    projected_s = pace.projection()
    return OverBudget(
        **vars(outcome), projection_s=projected_s, progress=pace.last, peak_memory_bytes=peak_bytes
    )


def run_figures(job: Job, report: Report) -> Mapping[str, float]:
    """Compute the figures common to all decisions, before a variant could tamper with them."""
    request = job.request()
    problem = request.build()
    report.send(job.stage(BOUND))
    return dict(load(request.family.abilities.figures)(problem, {}))


def run_check(job: Job, variant: str, report: Report) -> Checked:
    """Check one variant, and report progress."""
    request = job.request()
    family, problem = request.family, request.build()
    if job.figures:
        load(family.abilities.figures)(problem, job.figures)

    def begins(stage: str, recorder: Recorder) -> None:
        report.send(job.stage(stage, variant))
        if stage == CALL:
            threading.Thread(target=_report_progress, args=(recorder, report), daemon=True).start()

    report.send(job.stage(SET_UP, variant))
    return check(
        family,
        family.find(variant),
        problem,
        SystemClock(),
        begins,
        with_front=variant == request.reference.name,
        observed=not job.settings.sampling.once,
    )


def _report_progress(recorder: Recorder, report: Report) -> None:
    began, wait = time.monotonic(), threading.Event()
    while not wait.wait(_REPORT_SECONDS):
        # Another thread may change the data; the next attempt may succeed.
        with suppress(Exception):
            progress = recorder.progress()
            if isinstance(progress, Progress):
                progress = with_fields(progress, elapsed_s=time.monotonic() - began)
            report.send(Note((progress if isinstance(progress, Progress) else None, peak())))


def set_up(
    job: Job,
    family: Family[Any, Any],
    problem: Any,
    variants: Iterable[str],
    report: Report,
    check: Callable[[str, Any], None] = lambda name, decision: None,
) -> Timing:
    """Set variants up, to be timed; `report` closes them once the parent has the result."""

    def begins(stage: str, name: str = "", processes: int = 1, lasts_s: float = 0.0) -> None:
        report.send(job.stage(stage, name, processes, lasts_s))

    prepared = {}
    for name in variants:
        begins(SET_UP, name)
        prepared[name] = family.find(name).prepared(problem)
        report.closing.append(prepared[name].close)
    return Timing(prepared, begins=begins, check=check, report=report)


def run_sampling(
    job: Job, fingerprints: dict[str, str], wanted: SamplingRequest, report: Report
) -> dict[str, Times]:
    """Set variants up on one problem, time them interleaved, and return their times by name.

    `fingerprints` has, by variant, quickest first, the fingerprint of its checked decision, which
    every timed call must reproduce.
    """
    request = job.request()
    family, problem = request.family, request.build()

    def check_decision(name: str, decision: Any) -> None:
        if family.work_on(problem).fingerprint(decision) != fingerprints[name]:
            raise ShardbenchError("Its decision changed from one call to the next.")

    return sample(set_up(job, family, problem, fingerprints, report, check_decision), wanted)

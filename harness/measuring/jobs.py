"""The jobs of child processes: check one variant, time several interleaved, or profile some."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from harness.contract import Family, Progress, Recorder
from harness.contract.family import load
from harness.contract.registry import family_modules
from harness.execution.server import start_server
from harness.execution.usage import peak
from harness.execution.worker import Note, Report, Stage
from harness.measuring.check import Checked, check
from harness.measuring.request import CALL, SET_UP, Job
from harness.measuring.timing.clock import SystemClock
from harness.measuring.timing.sampling import Limits, SamplingRequest, sample
from harness.measuring.timing.times import Times
from harness.measuring.timing.turns import Observer, Sample
from harness.model.errors import ShardbenchError
from harness.model.settings import SamplingRule

TOGETHER = "the calls side by side"
_AFTER_CALL = "what followed its call"
_BOUND = "proving a bound"
_COUNTING = "counting its work"
_REPORT_SECONDS = 0.2
_INTERVALS = "scipy.special"  # computing the interval of a ratio needs it


class Reported(Struct, frozen=True):
    """The progress of a job; `progress` is None if the variant reports none.

    `peak_memory_bytes` is the peak so far of a call that is being checked.
    """

    progress: Progress | None
    peak_memory_bytes: int | None = None


def start_server_for(families: Iterable[Family[Any, Any]]) -> None:
    """Start the fork server with the modules that all jobs, and these families, import."""
    wanted = (module for family in families for module in family.modules)
    start_server((__name__, _INTERVALS, *family_modules(), *wanted))


def run_figures(job: Job, report: Report) -> Mapping[str, float]:
    """Compute the figures common to all decisions, before a variant could tamper with them."""
    request = job.request()
    problem = request.build()
    report.send(job.stage(_BOUND))
    return dict(load(request.family.abilities.figures)(problem, {}))


def run_check(job: Job, variant: str, report: Report) -> tuple[Checked, dict[str, float | str]]:
    """Check one variant, and report progress; return the check's result and the problem's facts."""
    request = job.request()
    family, problem = request.family, request.build()
    if job.figures:
        load(family.abilities.figures)(problem, job.figures)

    def call_begins(recorder: Recorder) -> None:
        report.send(job.stage(CALL, variant))
        threading.Thread(target=_report_progress, args=(recorder, report), daemon=True).start()

    report.send(job.stage(SET_UP, variant))
    checked = check(
        family,
        family.find(variant),
        problem,
        SystemClock(),
        call_begins,
        call_ended=lambda: report.send(job.stage(_AFTER_CALL, variant)),
        with_front=variant == request.reference.name,
        observed=not job.settings.sampling.once,
    )
    return checked, dict(family.work.facts(problem))


def _report_progress(recorder: Recorder, report: Report) -> None:
    wait = threading.Event()
    while not wait.wait(_REPORT_SECONDS):
        # Another thread may change the data; the next attempt may succeed.
        with suppress(Exception):
            progress = recorder.progress()
            is_known = isinstance(progress, Progress)
            report.send(Note(Reported(progress if is_known else None, peak())))


class Reporting(Observer):
    """Report the stages of timing, each with its limit in seconds, to the parent process.

    `check` is called with the variant's name and the decision after each turn.
    """

    def __init__(
        self,
        job: Job,
        report: Report,
        check: Callable[[str, Any], None] = lambda name, decision: None,
    ) -> None:
        self.report: Report = report
        self._job, self._check = job, check
        self._folder = os.open(".", os.O_PATH)  # works even if the folder was renamed or removed

    def turn_begins(self, name: str) -> None:
        """Report that a variant's calls begin, and restore the original working directory."""
        os.fchdir(self._folder)  # the previous variant may have changed it
        self.report.send(self._job.stage(CALL, name))

    def turn_ended(self, name: str, decision: Any) -> None:
        """Report that a variant's calls have ended, and check their decision."""
        self.report.send(self._job.stage(_AFTER_CALL, name))
        self._check(name, decision)

    def together(self, processes: int) -> None:
        """Report that calls begin side by side; their limit is the sum of the single limits."""
        self.report.send(Stage(TOGETHER, processes * self._job.settings.budget))

    def counting(self, name: str) -> None:
        """Report that counting the work of a variant's call begins."""
        self.report.send(self._job.stage(_COUNTING, name))

    def block_ended(self, block: int, turns: Sequence[Sample]) -> None:  # noqa: ARG002
        """Report the number of blocks that have been timed."""
        self.report.send(Note(Reported(Progress(block + 1, unit="blocks"))))


def run_sampling(
    job: Job,
    fingerprints: dict[str, str],
    reference: str | None,
    rule: SamplingRule,
    limits: Limits,
    report: Report,
) -> dict[str, Times]:
    """Set variants up on one problem, time them interleaved, and return their times by name.

    `fingerprints` has, by variant, the fingerprint of its checked decision, which every timed call
    must reproduce. `limits` has, by variant, ratios to the reference; the timing continues until
    the measured ratio is clearly above or below each.
    """
    request = job.request()
    problem = request.build()

    def check_decision(name: str, decision: Any) -> None:
        if request.family.work.fingerprint(decision) != fingerprints[name]:
            raise ShardbenchError("Its decision changed from one call to the next.")

    prepared = job.prepare(request, problem, fingerprints, report)
    timing = SamplingRequest(
        prepared, reference, rule, limits, may_fork=True, compared=request.family.clock
    )
    return sample(timing, Reporting(job, report, check_decision))


def run_profile(job: Job, seconds: float, report: Report) -> dict[str, Any]:
    """Call variants in turns, with and without a profiler; return a `Profiled` by variant name."""
    from harness.measuring.profile.profiler import profile

    request = job.request()
    problem = request.build()
    return profile(
        request.family.name,
        job.prepare(request, problem, request.variants, report),
        SystemClock(),
        seconds,
        Reporting(job, report),
    )

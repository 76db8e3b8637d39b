"""The jobs of child processes: check one variant, time several in turns, profile some."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from harness.contract import Family, Prepared, Progress, Recorder
from harness.contract.family import load
from harness.contract.registry import Registry, family_modules
from harness.execution.bootstrap import Report
from harness.execution.memory import peak
from harness.execution.messages import Note, Stage
from harness.execution.server import start_server
from harness.measuring.check import Checked, check
from harness.measuring.timing.clock import SystemClock
from harness.measuring.timing.sampling import Forks, Limits, sample
from harness.measuring.timing.times import Times
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule
from harness.model.topology import Topology

BUILDING = "building the problem"
CALL = "the call"
TOGETHER = "the calls side by side"
_SET_UP = "its set-up"
_AFTER_CALL = "what followed its call"
_BOUND = "proving a bound"
_COUNTING = "counting its work"
_REPORT_SECONDS = 0.2
_INTERVALS = "scipy.special"  # what the interval of a ratio imports


@dataclass(frozen=True, slots=True)
class Job:
    """A problem to build in a child process, and how many seconds its stages may take.

    `registry` must be importable by name. A call may take `budget`; each of the rest may take
    `setup_budget`: building the problem, setting a variant up, and what follows a call. `figures`
    hold for every decision, and are worked out already. `against` is what the others are
    compared with.
    """

    registry: Callable[[], Registry]
    family: str
    workload: WorkloadSpec
    topology: Topology
    budget: float
    setup_budget: float
    figures: Mapping[str, float] = field(default_factory=dict)
    against: str = ""

    def build(self) -> tuple[Family[Any, Any], Any]:
        """Return the family and the problem."""
        family = self.registry().find(self.family)
        return family, family.work.build(self.workload, self.topology)

    def stage(self, what: str, variant: str = "") -> Stage:
        """Return a stage of the work for a variant."""
        return Stage(what, self.budget if what == CALL else self.setup_budget, variant)

    def prepare(
        self, family: Family[Any, Any], problem: Any, variants: Iterable[str], report: Report
    ) -> dict[str, Prepared[Any]]:
        """Set variants up, to be closed once the parent has the result."""
        prepared = {}
        for name in variants:
            report.send(self.stage(_SET_UP, name))
            prepared[name] = family.find(name).prepared(problem)
            report.closing.append(prepared[name].close)
        return prepared


class Reported(Struct, frozen=True):
    """How far the checked call has come, where it tells, and its peak memory in bytes so far."""

    progress: Progress | None
    peak_memory_bytes: int


class BlockTimed(Struct, frozen=True):
    """The block with this number has been timed."""

    block: int


def start_server_for(families: Iterable[Family[Any, Any]]) -> None:
    """Start the server with what every job imports, and with what the families want of it."""
    wanted = (module for family in families for module in family.modules)
    start_server((__name__, _INTERVALS, *family_modules(), *wanted))


def run_figures(job: Job, report: Report) -> Mapping[str, float]:
    """Work out what holds for every decision, where no variant has run that could change it."""
    family, problem = job.build()
    report.send(job.stage(_BOUND))
    return dict(load(family.abilities.figures)(problem, {}))


def run_check(job: Job, variant: str, report: Report) -> tuple[Checked, dict[str, float | str]]:
    """Check one variant, and report progress while it runs; returns the problem's facts as well."""
    family, problem = job.build()
    if job.figures:
        load(family.abilities.figures)(problem, job.figures)

    def call_begins(recorder: Recorder) -> None:
        report.send(job.stage(CALL, variant))
        threading.Thread(target=_report_progress, args=(recorder, report), daemon=True).start()

    report.send(job.stage(_SET_UP, variant))
    checked = check(
        family,
        family.find(variant),
        problem,
        SystemClock(),
        call_begins,
        call_ended=lambda: report.send(job.stage(_AFTER_CALL, variant)),
        with_front=variant == job.against,
    )
    return checked, dict(family.work.facts(problem))


def _report_progress(recorder: Recorder, report: Report) -> None:
    wait = threading.Event()
    while not wait.wait(_REPORT_SECONDS):
        with suppress(Exception):  # it looks at what another thread changes; the next may do
            progress = recorder.progress()
            is_known = isinstance(progress, Progress)
            report.send(Note(Reported(progress if is_known else None, peak())))


def run_sampling(
    job: Job,
    fingerprints: dict[str, str],
    reference: str | None,
    rule: SamplingRule,
    limits: Limits,
    report: Report,
) -> dict[str, Times]:
    """Set all variants up on one problem, and time them interleaved.

    `fingerprints` are the checked decisions by variant: what is timed must go on deciding so.
    `limits` are the ratios to the reference that should be told apart, by variant.
    """
    family, problem = job.build()
    folder = os.open(".", os.O_PATH)  # whatever it is called, and whether it still is

    def turn_begins(name: str) -> None:
        os.fchdir(folder)  # the one before may have changed it
        report.send(job.stage(CALL, name))

    def decided(name: str, decision: Any) -> None:
        report.send(job.stage(_AFTER_CALL, name))
        if family.work.fingerprint(decision) != fingerprints[name]:
            raise ShardbenchError("Its decision changed from one call to the next.")

    def together(number: int) -> None:
        report.send(Stage(TOGETHER, number * job.budget))

    return sample(
        job.prepare(family, problem, fingerprints, report),
        reference,
        SystemClock(),
        rule,
        turn_begins=turn_begins,
        decided=decided,
        block_ended=lambda block, _: report.send(Note(BlockTimed(block))),
        limits=limits,
        forks=Forks(report, together, lambda name: report.send(job.stage(_COUNTING, name))),
    )


def run_profile(
    job: Job, variants: tuple[str, ...], seconds: float, report: Report
) -> dict[str, Any]:
    """Call variants in turns, without a profiler and with one; returns a `Profiled` by name."""
    from harness.measuring.profile.profiler import profile

    family, problem = job.build()
    return profile(
        family.name,
        job.prepare(family, problem, variants, report),
        SystemClock(),
        seconds,
        turn_begins=lambda name: report.send(job.stage(CALL, name)),
        turn_ended=lambda name: report.send(job.stage(_AFTER_CALL, name)),
    )

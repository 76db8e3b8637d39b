"""Compare the variants of a family on one problem: check each, then time those that passed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from harness.check import Checked
from harness.errors import ShardbenchError, UsageError
from harness.machine import environment
from harness.naming import CellId, ProblemId, WorkloadSpec
from harness.registry import Family, Progress, Registry, Variant, load_registry
from harness.results import Cell, summary
from harness.sampling import SamplingRule, Times
from harness.topologies import Topology
from harness.verdict import explain, judge
from harness.worker import (
    CallEnded,
    CheckDone,
    Child,
    Failed,
    Job,
    Prepares,
    ProfileDone,
    SamplingDone,
    TurnBegins,
    TurnEnded,
    child,
    run_check,
    run_profile,
    run_sampling,
    start_server,
)

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Event:
    """What a progress display shows: a stage of the comparison, and how far it has come.

    `step` counts variants while checking and blocks while timing; `steps` is 0 where how many
    there will be is not known.
    """

    stage: str
    variant: str
    step: int
    steps: int
    progress: Progress | None = None


Listener = Callable[[Event], None]


def _no_listener(event: Event) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Settings:
    """`budget` is the wall time in seconds that one call may take."""

    budget: float = 120.0
    sampling: SamplingRule = field(default_factory=SamplingRule)


@dataclass(slots=True)
class _OverBudget:
    elapsed_s: float
    first: tuple[float, Progress] | None = None
    last: tuple[float, Progress] | None = None

    def projection(self) -> float | None:
        """Project the whole call in seconds from the pace between first and last progress."""
        if self.first is None or self.last is None:
            return None
        (start, before), (end, after) = self.first, self.last
        if after.total is None or after.done <= before.done:
            return None
        pace = (end - start) / (after.done - before.done)
        return end + pace * max(0, after.total - after.done)


class Comparison:
    """The variants of a family on one problem, from the first check to the stored cells."""

    def __init__(
        self,
        family: Family[Any, Any],
        workload: WorkloadSpec,
        topology: Topology,
        variants: Sequence[str] = (),
        settings: Settings | None = None,
        registry: Callable[[], Registry] = load_registry,
        purpose: str = "",
    ) -> None:
        """Prepare to compare; an empty `variants` means all, and the reference is always added.

        Raises:
            UsageError: the workload or a variant is not known.
        """
        chosen = [family.find(name) for name in dict.fromkeys(variants)]
        self.family = family
        self.problem = ProblemId(family.label(workload), topology.name, topology.gpus)
        self._variants = [
            variant
            for variant in family.variants.values()
            if not chosen or variant in chosen or variant.is_reference
        ]
        self._job = Job(registry, family.name, workload, topology)
        self._settings = settings or Settings()
        self._listen: Listener = _no_listener
        self._purpose = purpose
        self._checked: dict[str, Checked] = {}

    def cell_id(self, variant: str) -> CellId:
        """Return the id of a variant's cell."""
        return CellId(self.family.name, variant, self.problem)

    def profile(self, variant: str, listen: Listener = _no_listener) -> dict[str, str]:
        """Profile one variant; returns the text of each file by suffix.

        Raises:
            ShardbenchError: the variant is not installed, fails, or is over budget.
        """
        if missing := self.family.find(variant).missing():
            raise ShardbenchError(f"'{variant}' is not installed: it needs {', '.join(missing)}.")
        self._listen = listen
        start_server(self.family.preload)
        with child(run_profile, self._job, variant) as process:
            outcome = self._await(process, Event("profiling", variant, 1, 1))
        if isinstance(outcome, ProfileDone):
            return outcome.files
        if isinstance(outcome, Failed):
            raise (UsageError if outcome.bad_input else ShardbenchError)(outcome.reason)
        raise ShardbenchError(f"'{variant}' was stopped after {self._settings.budget:g} s.")

    def run(self, listen: Listener = _no_listener) -> list[Cell]:
        """Measure; returns one cell for each variant, in the order they are registered."""
        self._listen = listen
        start_server(self.family.preload)
        described = environment(self._settings.sampling.seed)
        cells = {variant.name: self._empty_cell(variant) for variant in self._variants}
        for step, variant in enumerate(self._variants, start=1):
            self._check(variant, cells[variant.name], step)
        self._compare_decisions(cells)
        self._time(cells)
        for cell in cells.values():
            cell.environment = described
        return list(cells.values())

    def _empty_cell(self, variant: Variant[Any, Any]) -> Cell:
        family = self.family
        return Cell(
            cell=str(self.cell_id(variant.name)),
            family=family.name,
            variant=variant.name,
            workload=str(self.problem.workload),
            topology=self.problem.topology,
            gpus=self.problem.gpus,
            reference=family.reference.name,
            summary=variant.summary,
            source=variant.source,
            same_as=variant.same_as,
            purpose=self._purpose,
            claim=asdict(variant.claim) if variant.claim else None,
            qualities=[asdict(quality) for quality in family.qualities],
            counter_meanings={counter.name: counter.meaning for counter in family.counters},
            settings=asdict(self._settings),
        )

    def _check(self, variant: Variant[Any, Any], cell: Cell, step: int) -> None:
        if missing := variant.missing():
            cell.status = "not installed"
            cell.reason = f"needs {', '.join(missing)}"
            return
        with child(run_check, self._job, variant.name) as process:
            outcome = self._await(
                process, Event("checking", variant.name, step, len(self._variants))
            )
        if isinstance(outcome, Failed) and outcome.bad_input:
            raise UsageError(outcome.reason)
        if isinstance(outcome, CheckDone):
            self._checked[variant.name] = outcome.checked
            cell.fingerprint = outcome.checked.fingerprint
            cell.quality = dict(outcome.checked.quality)
            cell.counters = dict(outcome.checked.counters)
            cell.phases = dict(outcome.checked.phases)
            cell.facts = outcome.facts
            cell.size_name, cell.size = _size(outcome.facts)
        else:
            self._give_up(cell, outcome)

    def _give_up(self, cell: Cell, outcome: Any) -> None:
        if isinstance(outcome, _OverBudget):
            cell.status = "over budget"
            cell.reason = f"stopped after {outcome.elapsed_s:.0f} s"
            cell.projection_s = outcome.projection()
            if outcome.last:
                cell.progress = {**asdict(outcome.last[1]), "elapsed_s": outcome.last[0]}
        else:
            cell.status = "failed"
            cell.reason = outcome.reason

    def _await(
        self, process: Child, event: Event, times: dict[str, Times] | None = None
    ) -> (
        CheckDone
        | SamplingDone
        | ProfileDone
        | Failed
        | _OverBudget
        | tuple[str, Failed | _OverBudget]
    ):
        """Follow a child until it is done, has failed, or one call passes the budget.

        While timing, a failure or a call over budget comes with the variant that it is due to.
        """
        in_call = False
        busy = ""
        call_started = time.monotonic()
        over = _OverBudget(0.0)
        self._listen(event)
        while True:
            message = process.receive(_POLL_SECONDS)
            elapsed = time.monotonic() - call_started
            if isinstance(message, Failed) and busy and times is not None:
                return busy, message
            if isinstance(message, CheckDone | SamplingDone | ProfileDone | Failed):
                return message
            if isinstance(message, Prepares):
                busy = message.variant
            elif isinstance(message, CallEnded):
                in_call = False
            elif isinstance(message, TurnBegins):
                busy = message.variant
                in_call, call_started = True, time.monotonic()
                event = replace(event, variant=message.variant, progress=None)
                self._listen(event)
            elif isinstance(message, TurnEnded):
                in_call, busy = False, ""
                if times is not None:
                    times[message.variant].add(message.block, message.wall_s, message.cpu_s)
                    event = replace(event, step=message.block + 1)
            elif isinstance(message, Progress):
                over.first = over.first or (elapsed, message)
                over.last = (elapsed, message)
                event = replace(event, progress=message)
                self._listen(event)
            # Only where nothing waits to be read: what does may say that the call is over.
            if message is None and in_call and elapsed > self._settings.budget:
                over.elapsed_s = elapsed
                return (event.variant, over) if times is not None else over

    def _compare_decisions(self, cells: dict[str, Cell]) -> None:
        for variant in self._variants:
            cell = cells[variant.name]
            if variant.name not in self._checked:
                continue
            if variant.is_reference:
                cell.decision = "reference"
            elif variant.same_as is None:
                cell.decision = "own"
            else:
                expected = self._expected_fingerprint(variant)
                if expected is not None:
                    cell.decision = "same" if cell.fingerprint == expected else "different"

    def _expected_fingerprint(self, variant: Variant[Any, Any]) -> str | None:
        """Return the fingerprint of the last checked variant that it must decide the same as.

        A nearer one may decide otherwise itself.
        """
        expected = None
        for model in self.family.models_of(variant):
            if model.name in self._checked:
                expected = self._checked[model.name].fingerprint
        return expected

    def _time(self, cells: dict[str, Cell]) -> None:
        names = [name for name in self._checked if cells[name].decision != "different"]
        names.sort(key=lambda name: self._checked[name].wall_s)
        times = {name: Times() for name in names}
        reference = self.family.reference.name
        while names:
            compared_with = reference if reference in names else None
            with child(
                run_sampling,
                self._job,
                {name: self._checked[name].fingerprint for name in names},
                compared_with,
                self._settings.sampling,
            ) as process:
                outcome = self._await(process, Event("timing", names[0], 1, 0), times)
            if isinstance(outcome, SamplingDone):
                times.update(outcome.times)
                break
            if isinstance(outcome, tuple):
                stopped, reason = outcome
                self._give_up(cells[stopped], reason)
                names = [name for name in names if name != stopped]
            else:
                for name in names:
                    self._give_up(cells[name], outcome)
                names = []
            times = {name: Times() for name in names}
        for name in names:
            self._fill_times(cells[name], times[name], times.get(reference))

    def _fill_times(self, cell: Cell, times: Times, reference: Times | None) -> None:
        cell.wall_s, cell.cpu_s = summary(times.wall_s), summary(times.cpu_s)
        if cell.decision == "reference" or reference is None:
            return
        if cell.decision is None:
            cell.verdict_reason = "nothing to compare the decision with"
            return
        rule = self._settings.sampling
        try:
            ratio = times.ratio_to(reference, rule.seed)
        except ValueError as error:
            cell.verdict, cell.verdict_reason = "inconclusive", str(error)
            return
        if ratio is not None:
            cell.ratio = asdict(ratio)
            cell.verdict = judge(ratio, rule.noise_floor)
            cell.verdict_reason = explain(ratio, rule.noise_floor)


def _size(facts: dict[str, float | str]) -> tuple[str | None, float | None]:
    name = next(iter(facts), None)
    if name is None:
        return None, None
    value = facts[name]
    return (name, float(value)) if isinstance(value, int | float) else (None, None)

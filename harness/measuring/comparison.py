"""Compare the variants of a family on one problem: check each, then time those that pass."""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace as with_fields

from msgspec.structs import replace

from harness.contract.registry import Registry, load_registry
from harness.execution.worker import Failed
from harness.measuring.environment import environment
from harness.measuring.jobs import (
    CHECKING,
    Checked,
    Event,
    Listener,
    OverBudget,
    run_check,
    run_figures,
    run_job,
    run_sampling,
    start_server_for,
)
from harness.measuring.request import BUILDING, TOGETHER, Request
from harness.measuring.timing.sampling import SamplingRequest, Times
from harness.measuring.timing.verdict import explain, judge
from harness.model.cell import Cell, Summary
from harness.model.errors import UsageError
from harness.model.ids import ProblemId
from harness.model.settings import LONG_CALL_S, SamplingRule, Settings
from harness.model.statement import TIMES_FASTER
from harness.store.keys import key_of

_NO_FORK = (
    "timed in one process, because a fork lacks the threads, processes or devices that it uses"
)
_WAITS = (
    "takes far more wall time than CPU time: it waits, or works where its CPU time is not counted; "
    'a family with clock="wall" compares wall time'
)


class Comparison:
    """A comparison of a family's variants on one problem; `run` checks, times and judges them."""

    def __init__(
        self,
        request: Request,
        settings: Settings | None = None,
        registry: Callable[[], Registry] = load_registry,
    ) -> None:
        """Prepare the comparison; child processes call `registry` to find the family.

        Raises:
            UsageError: the workload or a variant does not exist.
        """
        family = self.family = request.family
        self._request, self._settings = request, settings or Settings()
        self._stored = {cell.variant: cell for cell in request.stored}
        self._against = request.reference
        stored = self._stored.get(self._against.name)
        if stored and stored.status == "not applicable":
            self._against = family.variants.get(stored.against, self._against)
            stored = self._stored.get(self._against.name)
        self.problem = request.problem
        # Those without stored cells; then the one to compare with runs again, to be timed.
        left = request.names().union([self._against.name]).difference(self._stored)
        if left and stored and stored.status == "ok":
            left.add(self._against.name)
        self._variants = [variant for variant in family.variants.values() if variant.name in left]
        self._job = with_fields(request, stored=()).job(self._settings, registry)
        self._cells: dict[str, Cell] = {}
        self._checked: dict[str, Checked] = {}

    def run(
        self,
        listen: Listener = lambda event: None,
        settled: Callable[[Cell], None] = lambda cell: None,
    ) -> list[Cell]:
        """Measure; return one cell for each variant, in the order of registration.

        `listen` gets progress events, and `settled` each cell as soon as it is final.
        """
        start_server_for([self.family])  # first, because it imports while the cells are made
        cells = self._cells = self._empty_cells()
        final = set(self._stored)

        def settle(names: Iterable[str]) -> None:
            for name in names:
                if name not in final:
                    final.add(name)
                    settled(cells[name])

        # 1. Figures common to all decisions; errors are ignored, because the checks repeat them.
        able = [variant for variant in self._variants if not variant.missing()]
        if self.family.abilities.figures is not None and len(able) > 1:
            event = Event("preparing", "the problem")
            outcome = run_job(run_figures, self._job, event=event, listen=listen)
            if not isinstance(outcome, Failed):
                self._job = with_fields(self._job, figures=outcome)
        # 2. Check each variant. No cell is final before the variant to compare with is checked, so
        # it comes first; if it is not applicable, the first that passed takes its place.
        self._check(listen, settle)
        against = cells.get(self._against.name)
        if against is not None and against.status == "not applicable":
            passed = [variant for variant in self._variants if variant.name in self._checked]
            self._against = (passed or [self._against])[0]
            for cell in cells.values():
                cell.against = self._against.name
        # 3. Compare the decisions of those that passed, and time those that decide as they must.
        self._compare_decisions()
        timed = [name for name in self._checked if cells[name].decision != "different"]
        settle(name for name in cells if name not in timed)
        timed = [name for name in timed if name not in self._request.counted]
        timed.sort(key=lambda name: self._checked[name].wall_s)
        if not all(name in self._stored for name in timed):
            rule = self._settings.sampling
            time_all = self._time_separately if rule.once else self._time_together
            for name, times in time_all(timed, listen).items():
                fill_from_times(cells[name], times, rule)
        settle(cells)
        return self._new(cells)

    def _new(self, cells: Mapping[str, Cell]) -> list[Cell]:
        names = (variant.name for variant in self._variants)
        return [cells[name] for name in names if name not in self._stored]

    def failed(self, reason: str) -> list[Cell]:
        """Return a failed cell with this reason for each variant without a stored cell."""
        cells = self._new(self._empty_cells())
        for cell in cells:
            cell.status, cell.reason = "failed", reason
        return cells

    def _empty_cells(self) -> dict[str, Cell]:
        """Return a cell for each variant, first that of the variant to compare with."""
        family, request = self.family, self._request
        described = environment(self._settings.sampling.seed, family.package)
        enough = {counter.name: counter.sufficient for counter in family.counters}
        cells = {}
        for variant in sorted(self._variants, key=lambda v: v is not self._against):
            cells[variant.name] = Cell(
                id=request.cell_id(variant.name),
                status="ok",
                reference=family.reference.name,
                against=self._against.name,
                summary=variant.summary,
                source=variant.source,
                same_as=variant.same_as,
                purpose=request.purpose,
                claim=variant.claim,
                qualities=list(family.qualities),
                clock=family.clock,
                counter_meanings={counter.name: counter.meaning for counter in family.counters},
                counter_enough={n: count for n, count in enough.items() if count is not None},
                settings=self._settings,
                environment=described,
                key=str(key_of(described, self._settings, request.reference.name)),
            )
        return cells

    def _check(self, listen: Listener, settle: Callable[[Iterable[str]], None]) -> None:
        """Check each variant; raise UsageError if the problem cannot be built."""
        unbuilt: Failed | None = None  # building it for another variant would take as long
        cells, budget, in_order = self._cells, self._settings.budget, list(self._cells)
        for step, (name, cell) in enumerate(cells.items(), start=1):
            if missing := self.family.variants[name].missing():
                cell.status, cell.reason = "not installed", f"needs {', '.join(missing)}"
            elif unbuilt:
                fill_from_failure(cell, unbuilt)
            else:
                event = Event(CHECKING, name, step, len(cells), doing=BUILDING, at_most_s=budget)
                outcome = run_job(run_check, self._job, name, event=event, listen=listen)
                if not isinstance(outcome, Failed):
                    self._checked[name] = outcome
                    fill_from_check(cell, outcome)
                else:
                    fill_from_failure(cell, outcome)
                    if outcome.stage.what == BUILDING and outcome.cause == "usage":
                        raise UsageError(outcome.reason)
                    if outcome.stage.what == BUILDING and outcome.cause == "time":
                        unbuilt = outcome
            against = cells.get(self._against.name)
            if against is None or against.status != "not applicable":
                settle(done for done in in_order[:step] if done not in self._checked)

    def _compare_decisions(self) -> None:
        """Set the decision of each cell that passed its check, where one is required of it.

        The required fingerprint is that of the last checked variant in the chain of `same_as`,
        because an earlier variant may be wrong itself. If none was checked, the variant to compare
        with replaces them, if both chains end at the same variant.
        """
        family, against = self.family, self._against
        decided = {name: cell.fingerprint for name, cell in self._stored.items()}
        decided |= {name: checked.fingerprint for name, checked in self._checked.items()}
        for name in self._checked:
            variant, cell = family.variants[name], self._cells[name]
            is_like_against = family.root(variant) is family.root(against)
            models = [model.name for model in family.models_of(variant) if decided.get(model.name)]
            if not models and is_like_against and decided.get(against.name):
                models = [against.name]
            if variant is against:
                cell.decision = "reference"
            elif variant.same_as is None and not is_like_against:
                cell.decision = "own"
            elif models:
                cell.decision = "same" if cell.fingerprint == decided[models[-1]] else "different"

    def _time_together(self, names: list[str], listen: Listener) -> dict[str, Times]:
        """Time variants together, again without those that fail, whose cells get the reason."""
        reference, rule, clock = self._against.name, self._settings.sampling, self.family.clock
        limits = {name: [limit] for name, limit in self._request.limits.items()}
        for goal in self.family.statements:
            if goal.measure != TIMES_FASTER or goal.at_least is None or goal.before != reference:
                continue
            if ProblemId.parse(goal.problem) == self._request.given:
                limits.setdefault(goal.after, []).append(1 / goal.at_least)
        while names:
            outcome = run_job(
                run_sampling,
                self._job,
                {name: self._checked[name].fingerprint for name in names},
                SamplingRequest(reference if reference in names else None, rule, limits, clock),
                event=Event("timing", names[0], steps=0, at_most_s=rule.seconds),
                listen=listen,
                together=len(names),
            )
            if not isinstance(outcome, Failed):
                times: dict[str, Times] = outcome
                return times
            if outcome.stage.what == TOGETHER:
                # Timing in turns will show which variant failed.
                rule = replace(rule, way="turns in one process")
                continue
            # If the failed variant is unknown, all variants fail.
            failed = [outcome.subject] if outcome.subject else names
            for name in failed:
                fill_from_failure(self._cells[name], outcome)
            names = [name for name in names if name not in failed]
        return {}

    def _time_separately(self, names: list[str], listen: Listener) -> dict[str, Times]:
        """Return the time of each checked call, and of another one if it does not take long.

        These calls are in processes of their own, so their ratios have no intervals.
        """
        times: dict[str, Times] = {}
        for name in names:
            calls = [self._checked[name]]
            if calls[0].wall_s < LONG_CALL_S:
                event = Event("timing", name, steps=0)
                outcome = run_job(run_check, self._job, name, event=event, listen=listen)
                calls += [] if isinstance(outcome, Failed) else [outcome]
            wall_s, cpu_s = [call.wall_s for call in calls], [call.cpu_s for call in calls]
            compared = wall_s if self.family.clock == "wall" else cpu_s
            blocks = {0: [statistics.fmean(compared)]}
            times[name] = Times(clock=self.family.clock, wall_s=wall_s, cpu_s=cpu_s, blocks=blocks)
        for of_variant in times.values():
            of_variant.reference = times.get(self._against.name)
        return times


def fill_from_check(cell: Cell, checked: Checked) -> None:
    """Fill a cell with the figures of its checked call and the facts about its problem."""
    for figure in fields(checked):
        if figure.name not in ("wall_s", "cpu_s"):  # the times of an observed call
            setattr(cell, figure.name, getattr(checked, figure.name))
    name, value = next(iter(checked.facts.items()), ("", ""))
    if isinstance(value, int | float):
        cell.size_name, cell.size = name, float(value)


def fill_from_failure(cell: Cell, outcome: Failed) -> None:
    """Fill a cell with the reason why its check or its timing failed or was stopped."""
    if isinstance(outcome, OverBudget):
        cell.status = "over budget"
        cell.reason = f"stopped after {outcome.elapsed_s:.0f} s"
        cell.projection_s, cell.progress = outcome.projection_s, outcome.progress
        cell.peak_memory_bytes = outcome.peak_memory_bytes or cell.peak_memory_bytes
    else:
        # A variant that passed its check is applicable, even if it raises NotApplicable later.
        has_no_part = outcome.cause == "not applicable" and cell.fingerprint is None
        cell.status = "not applicable" if has_no_part else "failed"
        cell.reason = outcome.reason
        cell.output = (outcome.output or None) if cell.status == "failed" else None


def fill_from_times(cell: Cell, times: Times, rule: SamplingRule) -> None:
    """Fill a cell with its times and, if there are times to compare with, its ratio and verdict."""
    reference = times.reference
    cell.wall_s, cell.cpu_s = Summary.of(times.wall_s), Summary.of(times.cpu_s)
    cell.thread_cpu_s, cell.work = Summary.of(times.thread_cpu_s), times.work
    if times.clock == "wall":
        cell.remark = "its ratio compares wall time"
    elif not times.may_fork:
        cell.remark = _NO_FORK
    if cell.decision == "reference" or reference is None:
        return
    if cell.decision is None:
        cell.verdict_reason = "nothing to compare the decision with"
        return
    try:
        ratio = times.ratio_to(reference)
    except ValueError as error:
        cell.verdict, cell.verdict_reason = "inconclusive", str(error)
        return
    if ratio is not None:
        cell.ratio = ratio
        cell.verdict = judge(ratio, rule.noise_floor)
        ended = rule.why_ended(len(times.blocks))
        cell.verdict_reason = explain(ratio, rule.noise_floor, ended)
        calls = {"a call": times, f"a call of {cell.against}": reference}
        waiting = [call for call, of_call in calls.items() if of_call.waits]
        if times.clock == "cpu" and waiting:
            cell.verdict, cell.verdict_reason = "inconclusive", f"{waiting[0]} {_WAITS}"

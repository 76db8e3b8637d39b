"""Compare the variants of a family on one problem: check each, then time those that pass."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as with_fields
from typing import Any, TypeGuard

from msgspec.structs import replace

from harness.contract.registry import Registry, load_registry
from harness.contract.variants import Variant
from harness.execution.worker import Failed
from harness.measuring.check import Checked
from harness.measuring.environment import environment
from harness.measuring.filling import fill_from_check, fill_from_failure, fill_from_times
from harness.measuring.jobs import TOGETHER, run_check, run_figures, run_sampling, start_server_for
from harness.measuring.monitor import CHECKING, Event, Listener, OverBudget, run_job
from harness.measuring.request import BUILDING, Request
from harness.measuring.timing.sampling import Limits
from harness.measuring.timing.times import Times
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId
from harness.model.settings import LONG_CALL_S, Settings


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
        self._request = request
        names = request.names()
        self._against = request.reference
        self._stored = {cell.variant: cell for cell in request.stored}
        held = self._stored.get(self._against.name)
        if held and held.status == "not applicable":
            self._against = family.variants.get(held.against, self._against)
            held = self._stored.get(self._against.name)
        self.problem = request.problem
        # Those without stored cells; then the one to compare with runs again, to be timed.
        left = {name for name in (*names, self._against.name) if name not in self._stored}
        if left and held and held.status == "ok":
            left.add(self._against.name)
        self._variants = [v for v in family.variants.values() if v.name in left]
        # The variant to compare with is checked first: until then, no cell is final.
        self._order = sorted(self._variants, key=lambda variant: variant is not self._against)
        self._goals = [g for g in family.goals if ProblemId.parse(g.problem) == request.given]
        self._overview = [
            row
            for row in family.overview
            if request.given in [ProblemId.parse(problem) for problem in row.problems]
        ]
        self._settings = settings or Settings()
        self._job = with_fields(request, stored=()).job(self._settings, registry)
        self._given = set(self._stored)
        self._checked: dict[str, Checked] = {}
        self._unbuilt: Failed | None = None

    def cell_id(self, variant: str) -> CellId:
        """Return the id of a variant's cell."""
        return CellId(self.family.name, variant, self.problem)

    def run(
        self,
        listen: Listener = lambda event: None,
        settled: Callable[[Cell], None] = lambda cell: None,
    ) -> list[Cell]:
        """Measure; return one cell for each variant, in the order of registration.

        `listen` gets progress events, and `settled` each cell as soon as it is final.
        """
        self._listen, self._settled = listen, settled
        able = [variant.name for variant in self._order if not variant.missing()]
        start_server_for([self.family])
        cells = self._empty_cells()
        # Figures common to all decisions; errors are ignored here, because the checks repeat them.
        if self.family.abilities.figures is not None and len(able) > 1:
            outcome = self._run(run_figures, event=Event("preparing", "the problem", 1, 1))
            if not isinstance(outcome, Failed | OverBudget):
                self._job = with_fields(self._job, figures=outcome)
        for step, variant in enumerate(self._order, start=1):
            self._check(variant, cells[variant.name], step)
            if not self._waits_for_stand_in(cells):
                done = (cells[checked.name] for checked in self._order[:step])
                self._settle(cell for cell in done if cell.variant not in self._checked)
        self._stand_in(cells)
        self._compare_decisions(cells)
        self._settle(
            cell
            for cell in cells.values()
            if cell.variant not in self._checked or cell.decision == "different"
        )
        self._time(cells)
        self._settle(cells.values())
        return self._new(cells)

    def _settle(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            if cell.variant not in self._given:
                self._given.add(cell.variant)
                self._settled(cell)

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
        described = environment(self._settings.sampling.seed, self.family.package)
        key = str(self._request.key(self._settings))
        cells = {variant.name: self._empty_cell(variant) for variant in self._order}
        for cell in cells.values():
            cell.environment, cell.key = described, key
        return cells

    def _waits_for_stand_in(self, cells: Mapping[str, Cell]) -> bool:
        """Return whether the variant to compare with is not applicable, so another replaces it."""
        against = cells.get(self._against.name)
        return against is not None and against.status == "not applicable"

    def _empty_cell(self, variant: Variant[Any, Any]) -> Cell:
        family = self.family
        return Cell(
            id=self.cell_id(variant.name),
            status="ok",
            reference=family.reference.name,
            against=self._against.name,
            summary=variant.summary,
            source=variant.source,
            same_as=variant.same_as,
            purpose=self._request.purpose,
            claim=variant.claim,
            qualities=list(family.qualities),
            clock=family.clock,
            goals=[goal for goal in self._goals if goal.variant == variant.name],
            overview=self._overview,
            counter_meanings={counter.name: counter.meaning for counter in family.counters},
            counter_enough={
                counter.name: counter.sufficient
                for counter in family.counters
                if counter.sufficient is not None
            },
            settings=self._settings,
        )

    def _check(self, variant: Variant[Any, Any], cell: Cell, step: int) -> None:
        if missing := variant.missing():
            cell.status = "not installed"
            cell.reason = f"needs {', '.join(missing)}"
            return
        if self._unbuilt is not None:
            fill_from_failure(cell, self._unbuilt)
            return
        budget = self._settings.budget
        event = Event(CHECKING, variant.name, step, len(self._variants), at_most_s=budget)
        outcome = self._run(run_check, variant.name, event=event)
        if isinstance(outcome, Failed | OverBudget):
            if _fails_to_build(outcome, "usage"):
                raise UsageError(outcome.reason)
            if _fails_to_build(outcome, "time"):
                self._unbuilt = outcome  # building it for the next variant would take as long
            fill_from_failure(cell, outcome)
        else:
            self._checked[variant.name], facts = outcome
            fill_from_check(cell, self._checked[variant.name], facts)

    def _run(
        self, work: Callable[..., Any], *arguments: Any, event: Event, held: int = 1
    ) -> Any | Failed | OverBudget:
        """Run a job in a child process with `held` variants, which scale its memory limit."""
        return run_job(
            work,
            self._job,
            *arguments,
            event=event,
            listen=self._listen,
            memory_gib=self._settings.memory_gib,
            held=held,
        )

    def _stand_in(self, cells: dict[str, Cell]) -> None:
        """If the variant to compare with is not applicable, use the first that passed its check."""
        if not self._waits_for_stand_in(cells):
            return
        applicable = [v for v in self._variants if v.name in self._checked]
        if applicable:
            self._against = applicable[0]
            for cell in cells.values():
                cell.against = self._against.name

    def _compare_decisions(self, cells: dict[str, Cell]) -> None:
        for variant in self._variants:
            cell = cells[variant.name]
            if variant.name not in self._checked:
                continue
            if variant is self._against:
                cell.decision = "reference"
            elif variant.same_as is None and not self._is_like_against(variant):
                cell.decision = "own"
            else:
                expected = self._expected_fingerprint(variant)
                if expected is not None:
                    cell.decision = "same" if cell.fingerprint == expected else "different"

    def _is_like_against(self, variant: Variant[Any, Any]) -> bool:
        """Return whether `variant` and the variant to compare with must make the same decision."""
        return self.family.root(variant) is self.family.root(self._against)

    def _expected_fingerprint(self, variant: Variant[Any, Any]) -> str | None:
        """Return the fingerprint that `variant` must have; None if it is unknown.

        It is that of the last checked variant in the chain of `same_as`, because an earlier variant
        may be wrong itself. If none was checked, the variant to compare with replaces them, if both
        chains end at the same variant.
        """
        decided = {name: cell.fingerprint for name, cell in self._stored.items()}
        decided |= {name: checked.fingerprint for name, checked in self._checked.items()}
        models = [model for model in self.family.models_of(variant) if decided.get(model.name)]
        if not models and self._is_like_against(variant):
            models = [self._against] if decided.get(self._against.name) else []
        return decided[models[-1].name] if models else None

    def _time(self, cells: dict[str, Cell]) -> None:
        names = [
            name
            for name in self._checked
            if cells[name].decision != "different" and name not in self._request.counted
        ]
        names.sort(key=lambda name: self._checked[name].wall_s)
        times: dict[str, Times] = {}
        reference, rule = self._against.name, self._settings.sampling
        if all(name in self._stored for name in names):
            return
        if rule.once:
            times = {name: self._time_separately(name) for name in names}
            for timed in times.values():
                timed.reference = times.get(reference)
        while names and not rule.once:
            outcome = self._run(
                run_sampling,
                {name: self._checked[name].fingerprint for name in names},
                reference if reference in names else None,
                rule,
                self._limits(),
                event=Event("timing", names[0], 1, 0, at_most_s=rule.seconds),
                held=len(names),
            )
            if not isinstance(outcome, Failed | OverBudget):
                times = outcome
                break
            if isinstance(outcome, Failed) and outcome.stage.what == TOGETHER:
                # Timing in turns will show which variant failed.
                rule = replace(rule, way="turns in one process")
                continue
            # If the failed variant is unknown, all variants fail.
            failed = [outcome.subject] if outcome.subject else names
            for name in failed:
                fill_from_failure(cells[name], outcome)
            names = [name for name in names if name not in failed]
        for name in names:
            fill_from_times(cells[name], times[name], self._settings.sampling)

    def _time_separately(self, name: str) -> Times:
        """Return the time of the checked call, and of another one if it does not take long."""
        calls = [self._checked[name]]
        if calls[0].wall_s < LONG_CALL_S:
            outcome = self._run(run_check, name, event=Event("timing", name, 1, 0))
            if not isinstance(outcome, Failed | OverBudget):
                calls.append(outcome[0])
        wall_s, cpu_s = [call.wall_s for call in calls], [call.cpu_s for call in calls]
        return Times.of_separate_calls(wall_s, cpu_s, self.family.clock)

    def _limits(self) -> Limits:
        """Return, by variant, the limits that goals and the request set for its ratio."""
        limits = {name: [limit] for name, limit in self._request.limits.items()}
        for goal in self._goals:
            against = goal.against or self.family.reference.name
            if goal.measure == "times faster" and against == self._against.name:
                limits.setdefault(goal.variant, []).append(1 / goal.limit)
        return limits


def _fails_to_build(outcome: Failed | OverBudget, cause: str) -> TypeGuard[Failed]:
    """Return whether building the problem failed for this `cause` of a `Failed`."""
    return isinstance(outcome, Failed) and (outcome.stage.what, outcome.cause) == (BUILDING, cause)

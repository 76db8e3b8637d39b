"""Find the releases or commits at which a figure or a decision changes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from harness.contract.abilities.series import Series
from harness.gate.expectations import Expectation, Expectations, MadeWith, Rules
from harness.gate.judging import GateVerdict, judge_cells
from harness.model.cell import Cell
from harness.model.errors import UsageError, unknown
from harness.model.ids import CellId
from harness.series.commits import Runner
from harness.series.points import Point, Run

DECISION = "decision"
"""The name of the decision itself among the figures of `difference`."""

_MOST_FAILURES = 12

Difference = Callable[[Run, Run], float]
"""How much two points differ, 0 where they do not."""


@dataclass(frozen=True, slots=True)
class Step:
    """Two successive runs of a series, of releases or commits.

    Attributes:
        before: the last successful run before `after`.
        after: the run of the point that made the difference.
        suspects: failed points between the two; any may have made the difference instead.
        is_outside: whether the commit of `after` changes no file in the declared paths.
    """

    before: Run
    after: Run
    suspects: tuple[Point, ...] = ()
    is_outside: bool = False

    def factor(self, name: str) -> float:
        """Return the ratio of a figure, after / before; NaN if not measured or both are 0."""
        before, after = self.before.value(name), self.after.value(name)
        return after / before if before else math.nan if before == after else math.inf

    @property
    def decision_changed(self) -> bool:
        """Whether the two runs made different decisions."""
        return self.before.cell.fingerprint != self.after.cell.fingerprint


def difference(declared: Series, names: Sequence[str], least: float = 1.0) -> Difference:
    """Return a function that returns the largest difference of two runs in these figures.

    The difference of a counter or quality is the absolute logarithm of the ratio; of decisions, 0
    or 1. Calls that change by less than the factor `least` do not differ. Raise UsageError for an
    unknown name.
    """
    known = (*declared.figures, DECISION)
    for name in names:
        if name not in known:
            raise unknown("counter or quality", name, known)

    def differ(one: Run, two: Run) -> float:
        return max(
            _difference(name, one, two, least if name in declared.calls else 1.0) for name in names
        )

    return differ


def _difference(name: str, one: Run, two: Run, least: float) -> float:
    step = Step(one, two)
    if name == DECISION:
        return float(step.decision_changed)
    values = one.value(name), two.value(name)
    before, after = (0.0 if math.isnan(value) else value for value in values)
    if before == after:
        return 0.0
    change = abs(math.log(after / before)) if before > 0 and after > 0 else math.inf
    return change if change >= math.log(least) else 0.0


def judge(declared: Series, before: Run, after: Run, least: float) -> GateVerdict:
    """Judge the run `after` by the gate, with the results of the run `before` as expectations.

    Counts that change by less than the factor `least` pass.
    """
    judged = [
        name
        for name in (*declared.calls, *declared.counters)
        if not 0 < _difference(name, before, after, 1.0) < math.log(least)
    ]

    def counters(cell: Cell) -> dict[str, int]:
        return {name: cell.counters[name] for name in judged if name in cell.counters}

    name = CellId(declared.library, "commit", before.cell.problem)
    expected = Expectation(
        fingerprint=before.cell.fingerprint,
        quality=before.cell.quality,
        counters=counters(before.cell),
    )
    environment = before.cell.environment
    rules = Rules(made_with=MadeWith(environment.python or "", environment.packages))
    measured = structs.replace(after.cell, id=name, counters=counters(after.cell))
    return judge_cells(Expectations({name: expected}, rules), {name: measured})


def neighbours(runs: Sequence[Run]) -> Iterator[Step]:
    """Yield each pair of successive successful runs as a step."""
    before: Run | None = None
    skipped: list[Point] = []
    for run in runs:
        if not run.is_ok:
            skipped.append(run.point)
            continue
        if before is not None:
            yield Step(before, run, tuple(skipped))
        before, skipped = run, []


def steps(runner: Runner, runs: Sequence[Run], differ: Difference) -> Iterator[Step]:
    """Yield the changes between successive commits, each traced to the commit that made it."""
    for step in neighbours(runs):
        if differ(step.before, step.after):
            yield from _traced(runner, step, differ)


def _traced(runner: Runner, step: Step, differ: Difference) -> Iterator[Step]:
    """Run both commits of a step and the parent of the later commit, and yield the true steps.

    Until now, a commit may have used the cell of another commit with the same files. Commits
    between the two change no declared path, but one of them may have made the difference.
    """
    before, after = (runner.run(side.point, own=True) for side in (step.before, step.after))
    if not (before.is_ok and after.is_ok):
        return
    parent = runner.repository.parent(after.point)
    last = before if parent is None or parent == before.point else runner.run(parent, own=True)
    if not last.is_ok:
        yield Step(before, after, step.suspects or (last.point,))
        return
    if differ(last, after):
        yield Step(last, after, step.suspects if last is before else ())
    if differ(before, last):
        between = runner.repository.commits(before.point, last.point, ())
        traced = bisected(runner, Step(before, last), between, differ, own=True)
        yield Step(traced.before, traced.after, traced.suspects, is_outside=True)


def bisected(
    runner: Runner, step: Step, between: Sequence[Point], differ: Difference, *, own: bool = False
) -> Step:
    """Bisect two commits that differ, towards the larger difference, and return the step.

    `between` has all commits after `step.before`, up to and including `step.after`, oldest first.
    """
    # Invariant: `before` and `after` differ, and `commits` has those after `before` to `after`.
    before, after, commits = step.before, step.after, list(between)
    failed: set[Point] = set()
    while len(commits) > 1:
        # 1. Run the commit nearest to the middle that runs; the last one is `after` itself.
        half = (len(commits) - 2) / 2
        middle: Run | None = None
        for place in sorted(range(len(commits) - 1), key=lambda place: abs(place - half)):
            if commits[place] in failed or len(failed) >= _MOST_FAILURES:
                continue
            run = runner.run(commits[place], own=own)
            if run.is_ok:
                middle = run
                break
            failed.add(commits[place])
        if middle is None:
            break
        # 2. Continue on the side with the larger difference.
        place = commits.index(middle.point) + 1
        if differ(before, middle) >= differ(middle, after):
            after, commits = middle, commits[:place]
        else:
            before, commits = middle, commits[place:]
    return Step(before, after, tuple(commits[:-1]))


def find(runner: Runner, after: Point, last: Point, name: str) -> list[Step]:
    """Bisect the commits from `after` to `last` for the largest change of a figure.

    Return the step, or two if commits outside the declared paths made part of it. Raise UsageError
    if one of the two commits fails or both have the same figure.
    """
    differ = difference(runner.declared, [name])
    one, two = (runner.run(commit, own=True) for commit in (after, last))
    for run in (one, two):
        if not run.is_ok:
            raise UsageError(f"{run.name} does not run: {run.cell.reason}")
    if not differ(one, two):
        raise UsageError(
            f"{name} is the same at {after.name} and {last.name}, so there is nothing to find."
        )
    between = runner.repository.commits(after, last, runner.commits.paths)
    if not between or between[-1] != last:
        between.append(last)
    return list(_traced(runner, bisected(runner, Step(one, two), between, differ), differ))

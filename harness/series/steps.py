"""Find the commits at which a figure or a decision changes."""

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from harness.contract.abilities import Series
from harness.gate.expectations import Expectation, Expectations, MadeWith
from harness.gate.judging import GateVerdict, judge_cells
from harness.model.cell import Cell
from harness.model.errors import UsageError, unknown
from harness.model.ids import CellId
from harness.series.points import DECISION, Point, Run, Step, neighbours
from harness.series.running import Runner

_MOST_FAILURES = 12

Difference = Callable[[Run, Run], float]
"""How much two points differ, 0 where they do not."""


def difference(declared: Series, names: Sequence[str], least: float = 1.0) -> Difference:
    """Return a function that returns the largest change between two runs in these figures.

    Calls that change by less than the factor `least` do not differ. Raise UsageError for an unknown
    name.
    """
    known = (*declared.figures, DECISION)
    for name in names:
        if name not in known:
            raise unknown("counter or quality", name, known)
    enough = {name: math.log(least) for name in declared.calls}

    def differ(one: Run, two: Run) -> float:
        changes = ((name, Step(one, two).change(name)) for name in names)
        return max(change if change >= enough.get(name, 0.0) else 0.0 for name, change in changes)

    return differ


def judge(declared: Series, before: Run, after: Run, least: float) -> GateVerdict:
    """Judge the run `after` by the gate, with the results of the run `before` as expectations.

    Counts that change by less than the factor `least` pass.
    """
    changes = {name: Step(before, after).change(name) for name in declared.figures}
    names = (*declared.calls, *declared.counters)
    judged = [name for name in names if not 0 < changes[name] < math.log(least)]

    def counters(cell: Cell) -> dict[str, int]:
        return {name: cell.counters[name] for name in judged if name in cell.counters}

    name = CellId(declared.library, "commit", before.cell.problem)
    expected = Expectation(
        fingerprint=before.cell.fingerprint,
        quality=before.cell.quality,
        counters=counters(before.cell),
    )
    environment = before.cell.environment
    made_with = MadeWith(environment.python or "", environment.packages)
    measured = structs.replace(after.cell, id=name, counters=counters(after.cell))
    expectations = Expectations({name: expected}, made_with=made_with)
    return judge_cells(expectations, {name: measured})


def steps(runner: Runner, runs: Sequence[Run], differ: Difference) -> Iterator[Step]:
    """Yield the changes between successive commits, each traced to the commit that made it."""
    for step in neighbours(runs):
        if differ(step.before, step.after):
            yield from _traced(runner, step, differ)


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
    return list(_traced(runner, _bisected(runner, Step(one, two), between, differ), differ))


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
        traced = _bisected(runner, Step(before, last), between, differ, own=True)
        yield Step(traced.before, traced.after, traced.suspects, is_outside=True)


def _bisected(
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

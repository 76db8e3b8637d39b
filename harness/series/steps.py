"""Steps between commits: where a figure or a decision changes, and which commit did it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.contract.abilities.history import History
from harness.model.errors import UsageError, unknown
from harness.series.repository import Commit
from harness.series.running import Run, Runner

DECISION = "decision"
"""What `difference_in` calls the decision itself."""

_MOST_FAILURES = 12

Difference = Callable[[Run, Run], float]
"""How much two commits differ, 0 where they do not."""


@dataclass(frozen=True, slots=True)
class Step:
    """Two commits that differ, the one before and the one that made the difference.

    Attributes:
        before: the last that runs before.
        after: the commit that did it.
        suspects: commits between them that do not run; where there are any, one of them may have
            done it instead.
        is_outside: whether the commit touches none of the paths that were asked about.
    """

    before: Run
    after: Run
    suspects: tuple[Commit, ...] = ()
    is_outside: bool = False

    def factor(self, name: str) -> float:
        """Return a figure after over the figure before; NaN where there is none."""
        before, after = self.before.value(name), self.after.value(name)
        return after / before if before else math.nan if before == after else math.inf

    @property
    def decision_changed(self) -> bool:
        """Whether the two decide otherwise."""
        return self.before.cell.fingerprint != self.after.cell.fingerprint


def difference_in(declared: History, name: str) -> Difference:
    """Return how much commits differ in a counter, a quality or the decision.

    Figures differ by the logarithm of their ratio. Raises UsageError for an unknown name.
    """
    known = figures_of(declared)
    if name not in (*known, DECISION):
        raise unknown("counter or quality", name, (*known, DECISION))

    def differ(one: Run, two: Run) -> float:
        if name == DECISION:
            return float(one.cell.fingerprint != two.cell.fingerprint)
        return _apart(one.value(name), two.value(name))

    return differ


def figures_of(declared: History) -> dict[str, str]:
    """Return all counters and qualities of a library, with what they say."""
    qualities = {each.name: each.meaning for each in declared.qualities}
    return {**declared.calls, **declared.counters, **qualities}


def _apart(one: float, two: float) -> float:
    one, two = (0.0 if math.isnan(each) else each for each in (one, two))
    if one == two:
        return 0.0
    return abs(math.log(two / one)) if one > 0 and two > 0 else math.inf


def changes(declared: History, least: float) -> Difference:
    """Return how much commits differ in calls by a factor, in a quality, or in the decision."""
    calls = [difference_in(declared, name) for name in declared.calls]
    others = [difference_in(declared, each.name) for each in declared.qualities]
    others.append(difference_in(declared, DECISION))

    def differ(one: Run, two: Run) -> float:
        most = max((each(one, two) for each in calls), default=0.0)
        most = most if most >= math.log(least) else 0.0
        return max([most, *(each(one, two) for each in others)])

    return differ


def steps(runner: Runner, runs: Sequence[Run], differ: Difference) -> Iterator[Step]:
    """Yield the steps of commits in their order, each traced to the commit that made it."""
    before: Run | None = None
    skipped: list[Commit] = []
    for run in runs:
        if not run.is_ok:
            skipped.append(run.commit)
            continue
        if before is not None and differ(before, run):
            yield from traced(runner, Step(before, run, tuple(skipped)), differ)
        before, skipped = run, []


def traced(runner: Runner, step: Step, differ: Difference) -> Iterator[Step]:
    """Yield what is left of a step when each of its commits is run itself, and its parent too.

    Commits that touch none of the paths lie between the two, and one of them may have done it; and
    what is known of one side may be from another commit that has the same files.
    """
    before, after = (runner.run(each.commit, own=True) for each in (step.before, step.after))
    parent = runner.repository.parent(after.commit)
    if parent is None or parent == before.commit or not after.is_ok or not before.is_ok:
        if after.is_ok and before.is_ok and differ(before, after):
            yield Step(before, after, step.suspects)
        return
    beside = runner.run(parent, own=True)
    if not beside.is_ok:
        yield Step(before, after, step.suspects or (parent,))
        return
    if differ(beside, after):
        yield Step(beside, after)
    if differ(before, beside):
        between = runner.repository.commits(before.commit, parent, ())
        found = bisected(runner, before, beside, between, differ, own=True)
        yield Step(found.before, found.after, found.suspects, is_outside=True)


def bisected(
    runner: Runner,
    before: Run,
    after: Run,
    between: Sequence[Commit],
    differ: Difference,
    *,
    own: bool = False,
) -> Step:
    """Return the step between two commits that differ, the greatest half each time.

    `between` has all commits after the one up to the other, oldest first.
    """
    commits = list(between)
    failed: set[str] = set()
    while len(commits) > 1:
        middle = _middle(runner, commits, failed, own)
        if middle is None:
            break
        place = commits.index(middle.commit) + 1
        if differ(before, middle) >= differ(middle, after):
            after, commits = middle, commits[:place]
        else:
            before, commits = middle, commits[place:]
    return Step(before, after, tuple(commits[:-1]))


def _middle(runner: Runner, commits: Sequence[Commit], failed: set[str], own: bool) -> Run | None:
    """Return the commit nearest to the middle that runs, the last one left out; None without."""
    half = (len(commits) - 1) / 2
    for place in sorted(range(len(commits) - 1), key=lambda each: abs(each + 0.5 - half)):
        if commits[place].id in failed or len(failed) >= _MOST_FAILURES:
            continue
        run = runner.run(commits[place], own=own)
        if run.is_ok:
            return run
        failed.add(commits[place].id)
    return None


def find(runner: Runner, after: Commit, last: Commit, name: str) -> list[Step]:
    """Return the greatest step of a figure between two commits, found by bisection.

    Raises UsageError where one of the two does not run or both have the same figure.
    """
    differ = difference_in(runner.declared, name)
    one, two = (runner.run(each, own=True) for each in (after, last))
    for each in (one, two):
        if not each.is_ok:
            raise UsageError(f"{each.commit.short} does not run: {each.cell.reason}")
    if not differ(one, two):
        raise UsageError(
            f"{name} is the same at {after.short} and {last.short}, so there is nothing to find."
        )
    between = runner.repository.commits(after, last, runner.declared.paths)
    if not between or between[-1] != last:
        between.append(last)
    step = bisected(runner, one, two, between, differ)
    return list(traced(runner, step, differ))

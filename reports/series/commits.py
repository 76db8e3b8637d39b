"""The history of a library, commit by commit: what each changed, and which of them run."""

import math
import re
from dataclasses import dataclass

from harness.contract.abilities.history import History
from harness.series.repository import Commit
from harness.series.running import Run
from harness.series.steps import Step
from reports.core.formatting import listing, number, plural
from reports.series.releases import changed_makers

_MOST_NAMED = 3
_QUOTED = re.compile(r"\s*\(?/\S*\)?")


@dataclass(frozen=True)
class CommitHistory:
    """All commits of a range on one problem, oldest first, and the steps between them."""

    declared: History
    problem: str
    runs: tuple[Run, ...]
    steps: tuple[Step, ...]
    least: float

    @property
    def ran(self) -> tuple[Run, ...]:
        """The commits that run, or have the files of one that does."""
        return tuple(each for each in self.runs if each.is_ok)

    @property
    def failed(self) -> dict[str, list[Commit]]:
        """The commits that do not run, by the reason, the commonest first."""
        found: dict[str, list[Commit]] = {}
        for each in self.runs:
            if not each.is_ok:
                # Where a file was checked out says nothing.
                reason = _QUOTED.sub("", each.cell.reason or each.cell.status).rstrip(".")
                found.setdefault(reason, []).append(each.commit)
        return dict(sorted(found.items(), key=lambda each: -len(each[1])))

    @property
    def dearer(self) -> tuple[Step, ...]:
        """The steps in calls that are large enough to be told."""
        return tuple(each for each in self.steps if any(self.factors(each)))

    @property
    def deciding(self) -> tuple[Step, ...]:
        """The steps after which another plan is made, or the same is estimated otherwise."""
        return tuple(each for each in self.steps if self.decision(each))

    def factors(self, step: Step) -> list[str]:
        """Return the counters of calls that a step changes by the least factor or more."""
        return [name for name in self.declared.calls if self.is_large(step.factor(name))]

    def is_large(self, factor: float) -> bool:
        """Whether a factor, either way, is as large as what is told."""
        return not math.isnan(factor) and not 1 / self.least < factor < self.least

    def decision(self, step: Step) -> str:
        """Say whether a step changes plans, or their estimates; empty where it does neither."""
        if step.decision_changed:
            return "other plan"
        same = all(step.factor(each.name) == 1 for each in self.declared.qualities)
        return "" if same else "other estimate"


def commit_findings(history: CommitHistory) -> list[str]:
    """Say in sentences which commits run, and what the large steps are made of."""
    runs, ran = history.runs, history.ran
    if not runs:
        return ["No commit of the range touches what decides."]
    said = [
        f"{len(ran)} of {plural(len(runs), 'commit')} run, or have the files of one that does "
        f"({100 * len(ran) / len(runs):.0f} %)."
    ]
    for reason, commits in history.failed.items():
        first, last = commits[0], commits[-1]
        where = f"{first.short} of {first.date}"
        if len(commits) > 1:
            where += f", to {last.short} of {last.date}"
        said.append(f"{plural(len(commits), 'commit')} not run ({where}): {reason}.")
    said += [text for step in history.dearer for text in step_sentences(history, step)]
    if ran and len(ran) > 1:
        whole = Step(ran[0], ran[-1])
        parts = [
            f"{_times(whole.factor(name))} the {meaning}"
            for name, meaning in history.declared.calls.items()
        ]
        said.append(
            f"From {ran[0].commit.short} ({ran[0].commit.date}) to {ran[-1].commit.short} "
            f"({ran[-1].commit.date}): {listing(parts)}."
        )
    return said


def step_sentences(history: CommitHistory, step: Step) -> list[str]:
    """Say of each part whose calls a step changes by how much, and which functions make them."""
    said = []
    for name in history.factors(step):
        part = name.removesuffix("_calls")
        one, two = step.before.value(name), step.after.value(name)
        text = (
            f"{step.after.commit.short}: {part} makes {_times(step.factor(name))} the calls "
            f"({two:,.0f} after {one:,.0f})"
        )
        makers = changed_makers(step.before.calls(part), step.after.calls(part))
        said.append(f"{text}; {makers}." if makers else f"{text}.")
    return said


def doubts(step: Step) -> str:
    """Say where it is not sure that it was this commit, or that it is one of the paths'."""
    if step.suspects:
        named = listing([each.short for each in step.suspects[:_MOST_NAMED]])
        if len(step.suspects) == 1:
            return f"or {named} before it, which does not run"
        if len(step.suspects) <= _MOST_NAMED:
            return f"or one of {named} before it, which do not run"
        return f"or one of {len(step.suspects)} commits before it, which do not run"
    return "touches none of the files asked about" if step.is_outside else ""


def counters_changed(history: CommitHistory, step: Step) -> list[tuple[str, float, float]]:
    """Return each counter and quality that a step changes, with both figures."""
    names = [*history.declared.calls, *history.declared.counters]
    names += [each.name for each in history.declared.qualities]
    pairs = ((name, step.before.value(name), step.after.value(name)) for name in names)
    return [each for each in pairs if each[1] != each[2] and not all(map(math.isnan, each[1:]))]


def _times(factor: float) -> str:
    return f"{number(factor)} times"

"""A series on one problem: its releases or commits, the steps between them, and its findings."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packaging.version import Version

from harness.contract import Series
from harness.model.cell import Cell, by_problem
from harness.series.points import Kind, Point, Run
from harness.series.steps import Step, neighbours
from reports.core.formatting import listing, number, plural, seconds

# A step between releases is reported if it multiplies or divides the calls by this or more.
_STEP = 1.2
_MOST_MAKERS = 3
_MOST_SHARE = 0.8
_MOST_NAMED = 3
_QUOTED = re.compile(r"\s*\(?/\S*\)?")


class Span(NamedTuple):
    """Median, minimum and maximum of repeated CPU times, in seconds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class View:
    """The runs of releases or commits on one problem, oldest first, and the steps between them.

    Steps that change the calls by less than the factor `least` are not reported. `parts` names the
    parts of a planner's call to show.
    """

    declared: Series
    kind: Kind
    problem: str
    runs: tuple[Run, ...]
    steps: tuple[Step, ...]
    least: float
    parts: tuple[str, ...]

    @property
    def ran(self) -> tuple[Run, ...]:
        """The runs that succeeded; a commit counts if another commit with the same files ran."""
        return tuple(run for run in self.runs if run.is_ok)

    @property
    def failed(self) -> dict[str, list[Point]]:
        """The releases or commits that failed, by reason, the most frequent reason first."""
        found: dict[str, list[Point]] = {}
        for run in self.runs:
            if not run.is_ok:
                reason = run.cell.reason or run.cell.status
                if self.kind == "commits":  # remove paths: each checkout has a temporary folder
                    reason = _QUOTED.sub("", reason)
                found.setdefault(reason.rstrip("."), []).append(run.point)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    @property
    def large(self) -> tuple[Step, ...]:
        """The steps that change the calls of some part by the factor `least` or more."""
        return tuple(step for step in self.steps if self.factors(step))

    @property
    def deciding(self) -> tuple[Step, ...]:
        """The steps that change the plan, or keep the plan and change its estimated quality."""
        return tuple(step for step in self.steps if self.decision(step))

    @property
    def turns(self) -> int:
        """The largest number of timed samples of one run, 0 if no run was timed."""
        timed = (run.cell.cpu_s for run in self.ran)
        return max((len(spent.samples) for spent in timed if spent), default=0)

    def factors(self, step: Step) -> list[str]:
        """Return the call counters that a step changes by the factor `least` or more."""
        counters = (f"{part}_calls" for part in self.parts)
        changed = ((name, step.factor(name)) for name in counters)
        return [
            name
            for name, factor in changed
            if not math.isnan(factor) and not 1 / self.least < factor < self.least
        ]

    def decision(self, step: Step) -> str:
        """Return `other plan`, or `other estimate` if only the quality changed, or ""."""
        if step.decision_changed:
            return "other plan"
        same = step.before.cell.quality == step.after.cell.quality
        return "" if same else "other estimate"


def release_views(declared: Series, cells: Sequence[Cell]) -> list[View]:
    """Return one view per problem of these cells, each with all its releases."""
    views = []
    for problem, found in by_problem(cells).items():
        ordered = sorted(found.values(), key=lambda cell: Version(cell.variant))
        runs = tuple(Run(Point(cell.variant), cell) for cell in ordered)
        steps, parts = tuple(neighbours(runs)), (declared.first_part,)
        views.append(View(declared, "releases", str(problem), runs, steps, _STEP, parts))
    return views


def findings(view: View) -> list[str]:
    """Return sentences on failed runs, the causes of large steps, and changed decisions."""
    if not view.runs:
        return ["No commit of the range touches the paths that decide."]
    found = []
    if view.kind == "commits":
        found.append(
            f"{len(view.ran)} of {plural(len(view.runs), 'commit')} could be run, or have the same "
            f"files as one that could ({100 * len(view.ran) / len(view.runs):.0f} %)."
        )
    found += [
        f"{_named(points)} could not be run: {reason}." for reason, points in view.failed.items()
    ]
    found += [text for step in view.large for text in step_sentences(view, step)]
    if len(view.ran) > 1:
        found += _whole(view, Step(view.ran[0], view.ran[-1]))
        if view.kind == "releases":
            found += [text for step in view.steps if (text := _counters(view, step))]
        found += _decisions(view)
    return found


def _named(points: Sequence[Point]) -> str:
    first, last = points[0], points[-1]
    if not first.date:
        return listing([point.name for point in points])
    if len(points) == 1:
        return f"{first.name} of {first.date}"
    return (
        f"{plural(len(points), 'commit')} ({first.name} of {first.date} to {last.name} of "
        f"{last.date})"
    )


def step_sentences(view: View, step: Step) -> list[str]:
    """Return a sentence per part: the change of its calls, and the functions behind the change."""
    found = []
    for name in view.factors(step):
        part = name.removesuffix("_calls")
        one, two = step.before.value(name), step.after.value(name)
        text = (
            f"{step.after.name}: {part} makes {_times(step.factor(name))} the calls of "
            f"{step.before.name} ({two:,.0f} after {one:,.0f})"
        )
        makers = changed_makers(step.before.calls(part), step.after.calls(part))
        found.append(f"{text}; {makers}." if makers else f"{text}.")
    return found


def changed_makers(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Name the functions that make most of the added calls, or made most of the removed ones.

    Return "" if no function's count changed.
    """
    added = sum(after.values()) >= sum(before.values())
    changed = Counter(after) - Counter(before) if added else Counter(before) - Counter(after)
    makers: list[str] = []
    covered = 0
    for name, calls in changed.most_common(_MOST_MAKERS):
        makers.append(f"{name} ({calls:,})")
        covered += calls
        if covered >= _MOST_SHARE * changed.total():
            break
    if not makers:
        return ""
    share = 100 * covered / changed.total()
    what = "added are" if added else "saved were"
    return f"{share:.0f} % of those {what} made by {listing(makers)}"


def _whole(view: View, step: Step) -> list[str]:
    first, last = step.before, step.after
    factors = {part: step.factor(f"{part}_calls") for part in view.parts}
    grown = [
        f"{_times(factor)} the calls of {view.declared.parts[part]}"
        for part, factor in factors.items()
        if math.isfinite(factor)
    ]
    if not grown:
        return []
    text = f"From {_dated(first.point)} to {_dated(last.point)}: {listing(grown)}"
    spans = [span_of(run, view.parts[0]) for run in (first, last)]
    if spans[0] and spans[1] and spans[0].median:
        one, two = spans[0].median, spans[1].median
        text += (
            f", and {_times(two / one)} the CPU time of {view.parts[0]} "
            f"({seconds(one)} to {seconds(two)})"
        )
    if last.cell.ratio and last.cell.verdict != "inconclusive":
        low, high = (number(end, trim=True) for end in last.cell.ratio.interval)
        text += f"; the whole takes {_times(last.cell.ratio.value)} as long ({low} to {high})"
    return [f"{text}."]


def _dated(point: Point) -> str:
    return f"{point.name} ({point.date})" if point.date else point.name


def _counters(view: View, step: Step) -> str:
    changed = [
        f"{name} {one:,.0f} to {two:,.0f}"
        for name, one, two in changed_figures(view.declared.counters, step)
    ]
    return f"{step.after.name}: {listing(changed, most=9)}." if changed else ""


def _decisions(view: View) -> list[str]:
    other = [step.after.name for step in view.steps if view.decision(step) == "other plan"]
    estimated = [step.after.name for step in view.steps if view.decision(step) == "other estimate"]
    found = [f"All {len(view.ran)} {view.kind} make the same decision."]
    if other:
        found = [f"{listing(other, most=9)}: another decision than before."]
    if estimated:
        found.append(f"{listing(estimated, most=9)}: the same decision with another estimate.")
    return found


def caveats(step: Step) -> str:
    """Return why a step's commit may not be the cause, or that it touches no declared path.

    Return "" if neither applies.
    """
    if step.suspects:
        named = listing([commit.name for commit in step.suspects[:_MOST_NAMED]])
        if len(step.suspects) == 1:
            return f"or {named} before it, which could not be run"
        if len(step.suspects) <= _MOST_NAMED:
            return f"or one of {named} before it, which could not be run"
        return f"or one of {len(step.suspects)} commits before it, which could not be run"
    return "touches none of the files asked about" if step.is_outside else ""


def changed_figures(names: Mapping[str, str], step: Step) -> list[tuple[str, float, float]]:
    """Return (name, value before, value after) for each of these figures that a step changes."""
    found = []
    for name in names:
        values = (run.value(name) for run in (step.before, step.after))
        one, two = (0.0 if math.isnan(value) else value for value in values)
        if one != two:
            found.append((name, one, two))
    return found


def span_of(run: Run, part: str, *, rest: bool = False) -> Span | None:
    """Return median and range of the CPU seconds of a part, or with `rest` of all other parts.

    The part's share of the phases scales the CPU time of the whole call. Return None if the run
    has no CPU time or no phases.
    """
    spent, phases = run.cell.cpu_s, run.cell.phases
    if spent is None or not phases:
        return None
    whole = sum(phases.values())
    share = phases.get(part, 0.0) / whole if whole else 0.0
    if rest:
        share = 1 - share
    return Span(share * spent.median, share * min(spent.samples), share * max(spent.samples))


def makers(run: Run, part: str) -> dict[str, int]:
    """Return the number of calls in a part by the module that makes them, the largest first."""
    modules: Counter[str] = Counter()
    for function, calls in run.calls(part).items():
        modules[function.partition(".")[0]] += calls
    return dict(modules.most_common())


def _times(factor: float) -> str:
    return f"{number(float(factor), trim=True)} times"

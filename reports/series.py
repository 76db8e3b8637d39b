"""A series on one problem: its releases or commits, the steps between them, findings and tables."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from harness.contract import Series
from harness.model.cell import Cell, by_problem
from harness.series.points import Kind, Point, Run
from harness.series.steps import Step, neighbours
from reports.core.formatting import MISSING, count, listing, number, plural, seconds, with_interval
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text

# A step between releases is reported if it multiplies or divides the calls by this or more.
_STEP = 1.2
_MOST_MAKERS = 3
_MOST_SHARE = 0.8
_MOST_NAMED = 3
_QUOTED = re.compile(r"\s*\(?/\S*\)?")

Span = tuple[float, float, float]
"""Median, minimum and maximum of repeated CPU times, in seconds."""


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
    def large(self) -> tuple[Step, ...]:
        """The steps that change the calls of some part by the factor `least` or more."""
        return tuple(step for step in self.steps if self.factors(step))

    @property
    def turns(self) -> int:
        """The largest number of timed samples of one run, 0 if no run was timed."""
        timed = (run.cell.cpu_s for run in self.ran)
        return max((len(spent.samples) for spent in timed if spent), default=0)

    def factors(self, step: Step) -> list[str]:
        """Return the call counters that a step changes by the factor `least` or more."""
        changed = {name: step.factor(name) for name in (f"{part}_calls" for part in self.parts)}
        return [
            name
            for name, factor in changed.items()
            if not math.isnan(factor) and not 1 / self.least < factor < self.least
        ]

    def decision(self, step: Step) -> str:
        """Return `other plan`, or `other estimate` if only the quality changed, or ""."""
        if step.decision_changed:
            return "other plan"
        same = step.before.cell.quality == step.after.cell.quality
        return "" if same else "other estimate"

    def address(self, run: Run) -> str:
        """Return the URL of a commit's pull request, or "" if the commit has none."""
        commits, asked = self.declared.commits, run.point.pull_request
        return commits.pull_requests.format(number=asked) if commits and asked else ""


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
    failed: dict[str, list[str]] = {}
    for run in view.runs:
        if not run.is_ok:
            reason = run.cell.reason or run.cell.status
            if view.kind == "commits":  # remove paths: each checkout has a temporary folder
                reason = _QUOTED.sub("", reason)
            failed.setdefault(reason.rstrip("."), []).append(run.name)
    for reason, names in sorted(failed.items(), key=lambda item: -len(item[1])):
        found.append(f"{listing(names)} could not be run: {reason}.")
    found += [sentence for step in view.large for sentence in step_sentences(view, step)]
    if len(view.ran) > 1:
        found += _whole(view, Step(view.ran[0], view.ran[-1]))
        for step in view.steps if view.kind == "releases" else ():
            changed = [
                f"{name} {before:,.0f} to {after:,.0f}"
                for name, before, after in changed_figures(view.declared.counters, step)
            ]
            if changed:
                found.append(f"{step.after.name}: {listing(changed, most=9)}.")
        other, estimated = (
            [step.after.name for step in view.steps if view.decision(step) == which]
            for which in ("other plan", "other estimate")
        )
        if other:
            found.append(f"{listing(other, most=9)}: another decision than before.")
        else:
            found.append(f"All {len(view.ran)} {view.kind} make the same decision.")
        if estimated:
            found.append(f"{listing(estimated, most=9)}: the same decision with another estimate.")
    return found


def step_sentences(view: View, step: Step) -> list[str]:
    """Return a sentence per part: the change of its calls, and the functions behind the change."""
    found = []
    for name in view.factors(step):
        part = name.removesuffix("_calls")
        before, after = step.before.value(name), step.after.value(name)
        told = (
            f"{step.after.name}: {part} makes {_times(step.factor(name))} the calls of "
            f"{step.before.name} ({after:,.0f} after {before:,.0f})"
        )
        makers = _changed_makers(step.before.calls(part), step.after.calls(part))
        found.append("; ".join(filter(None, (told, makers))) + ".")
    return found


def _changed_makers(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Name the functions that make most of the added calls, or made most of the removed ones.

    Return "" if no function's count changed.
    """
    added = sum(after.values()) >= sum(before.values())
    changed = Counter(after) - Counter(before) if added else Counter(before) - Counter(after)
    if not changed:
        return ""
    makers: list[str] = []
    covered = 0
    for name, calls in changed.most_common(_MOST_MAKERS):
        makers.append(f"{name} ({calls:,})")
        covered += calls
        if covered >= _MOST_SHARE * changed.total():
            break
    share = 100 * covered / changed.total()
    what = "added are" if added else "saved were"
    return f"{share:.0f} % of those {what} made by {listing(makers)}"


def _whole(view: View, step: Step) -> list[str]:
    """Return a sentence on all steps together: calls, CPU time, and the ratio of times."""
    factors = {part: step.factor(f"{part}_calls") for part in view.parts}
    grown = [
        f"{_times(factor)} the calls of {view.declared.parts[part]}"
        for part, factor in factors.items()
        if math.isfinite(factor)
    ]
    if not grown:
        return []
    first, last = (f"{run.name} {run.point.date}".strip() for run in (step.before, step.after))
    told = f"From {first} to {last}: {listing(grown)}"
    before, after = (span_of(run, view.parts[0]) for run in (step.before, step.after))
    if before and after and before[0]:
        told += (
            f", and {_times(after[0] / before[0])} the CPU time of {view.parts[0]} "
            f"({seconds(before[0])} to {seconds(after[0])})"
        )
    ratio = step.after.cell.ratio
    if ratio and step.after.cell.verdict != "inconclusive":
        low, high = (number(end, trim=True) for end in ratio.interval)
        told += f"; the whole takes {_times(ratio.value)} as long ({low} to {high})"
    return [f"{told}."]


def _times(factor: float) -> str:
    return f"{number(float(factor), trim=True)} times"


def caveats(step: Step) -> str:
    """Return why a step's commit may not be the cause, or that it touches no declared path.

    Return "" if neither applies.
    """
    if step.suspects:
        names = [commit.name for commit in step.suspects]
        named = listing(names) if len(names) <= _MOST_NAMED else f"{len(names)} commits"
        return f"or {'one of ' if len(names) > 1 else ''}{named} before it, which could not be run"
    return "touches none of the files asked about" if step.is_outside else ""


def changed_figures(names: Mapping[str, str], step: Step) -> list[tuple[str, float, float]]:
    """Return (name, value before, value after) for each of these figures that a step changes."""
    found = []
    for name in names:
        values = (run.value(name) for run in (step.before, step.after))
        before, after = (0.0 if math.isnan(value) else value for value in values)
        if before != after:
            found.append((name, before, after))
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
    return share * spent.median, share * min(spent.samples), share * max(spent.samples)


def tables(view: View) -> dict[str, Table]:
    """Return tables by heading: all releases, or the commits that changed calls or decisions."""
    if view.kind == "releases":
        steps = {step.after.name: step for step in view.steps}
        rows = [(steps.get(run.name), run) for run in view.runs]
        return {"": table_of(rows, code("release", lambda row: row[1].name), *_of_release(view))}

    def changed_by(steps: Sequence[Step]) -> Table:
        rows = [(step, step.after) for step in steps]
        return table_of(rows, code("commit", lambda row: row[1].name), *_of_commit(view))

    deciding = [step for step in view.steps if view.decision(step)]
    return {
        "Commits that changed the calls": changed_by(view.large),
        "Commits that changed decisions": changed_by(deciding),
    }


# The rows of both are pairs of the step that leads to a point, None if there is none, and its run.
def _of_release(view: View) -> list[TableColumn]:
    part, counter = view.parts[0], next(iter(view.declared.counters))

    def counted(name: str, run: Run) -> Entry:
        value = run.value(name) if run.is_ok else math.nan
        return Entry(MISSING) if math.isnan(value) else Entry(count(value), value)

    def spent(run: Run, *, rest: bool) -> Entry:
        span = span_of(run, part, rest=rest)
        if span is None:
            return Entry(MISSING)
        median, low, high = (1e3 * value for value in span)
        written = number(median) if rest else with_interval(median, low, high).replace(" (", "\n(")
        return Entry(written, median)

    def decision(step: Step | None, run: Run) -> str:
        return (view.decision(step) or "same") if step else "first" if run.is_ok else "not run"

    first = view.ran[0] if view.ran else None
    return [
        numbers(f"calls of\n{part}", lambda row: counted(f"{part}_calls", row[1])),
        numbers("to\nprev.", lambda row: _factor(row[0], part)),
        numbers(
            "to\nfirst",
            lambda row: _factor(Step(first, row[1]) if first and row[1].is_ok else None, part),
        ),
        numbers(f"CPU ms of\n{part}", lambda row: spent(row[1], rest=False)),
        numbers("ms of\nthe rest", lambda row: spent(row[1], rest=True)),
        numbers(counter.replace("_", "\n"), lambda row: counted(counter, row[1])),
        text("decision", lambda row: decision(*row)),
    ]


def _of_commit(view: View) -> list[TableColumn]:
    def factor(part: str) -> TableColumn:
        return numbers(f"{part}\ncalls", lambda row: _factor(row[0], part))

    def title(step: Step, run: Run) -> str:
        caveat = caveats(step)
        return run.point.title + (f" ({caveat})" if caveat else "")

    def pull_request(run: Run) -> Entry:
        asked = run.point.pull_request
        return Entry(f"#{asked}", link=view.address(run)) if asked else Entry(MISSING)

    return [
        text("date", lambda row: row[1].point.date),
        *map(factor, view.parts),
        text("decision", lambda row: view.decision(row[0]) or "same"),
        text("PR", lambda row: pull_request(row[1])),
        text("title", lambda row: title(*row)),
    ]


def _factor(step: Step | None, part: str) -> Entry:
    value = step.factor(f"{part}_calls") if step else math.nan
    return Entry(number(float(value)), value)

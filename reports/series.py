"""A series on one problem: its releases or commits, the steps between them, findings and tables."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from harness.contract import Series
from harness.model.cell import Cell, by_problem
from harness.series.points import DECISION, Kind, Point, Run, Step, neighbours
from reports.core.formatting import count, listing, number, with_interval
from reports.core.table import Entry, Table, code, numbers, table_of, text

# A step between releases is reported if it multiplies or divides the calls by this or more.
_STEP = 1.2
_MOST_MAKERS = 3

Row = dict[str, Any]
"""The values of a release or commit by column, as in `history.csv`."""


@dataclass(frozen=True)
class View:
    """The runs of releases or commits on one problem, oldest first, and the steps between them.

    Steps that change the calls by less than the factor `least` are not reported.
    """

    declared: Series
    kind: Kind
    problem: str
    runs: tuple[Run, ...]
    steps: tuple[Step, ...]
    least: float = _STEP

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a planner's call whose calls are shown; the first of releases."""
        parts = tuple(self.declared.parts)
        return parts[:1] if self.kind == "releases" else parts

    @property
    def ran(self) -> tuple[Run, ...]:
        """The runs that succeeded; a commit counts if another commit with the same files ran."""
        return tuple(run for run in self.runs if run.is_ok)

    @property
    def turns(self) -> int:
        """The largest number of timed samples of one run, 0 if no run was timed."""
        timed = (run.cell.cpu_s for run in self.ran)
        return max((len(spent.samples) for spent in timed if spent), default=0)

    def changed_parts(self, step: Step) -> list[str]:
        """Return the parts whose calls a step changes by the factor `least` or more."""
        changes = {part: step.change(f"{part}_calls") for part in self.parts}
        least = math.log(self.least)
        return [part for part, change in changes.items() if change and change >= least]

    def decision(self, step: Step) -> str:
        """Return `other plan`, or `other estimate` if only the quality changed, or `same`."""
        if step.change(DECISION):
            return "other plan"
        same = step.before.cell.quality == step.after.cell.quality
        return "same" if same else "other estimate"

    def address(self, pull_request: str) -> str:
        """Return the URL of a pull request, or "" if there is none."""
        pattern = self.declared.commits.pull_requests if self.declared.commits else ""
        return pattern.format(number=pull_request) if pull_request else ""


def release_views(declared: Series, cells: Sequence[Cell]) -> list[View]:
    """Return one view per problem of these cells, each with all its releases."""
    views = []
    for problem, by_id in by_problem(cells).items():
        ordered = sorted(by_id.values(), key=lambda cell: Version(cell.variant))
        runs = tuple(Run(Point(cell.variant), cell) for cell in ordered)
        views.append(View(declared, "releases", str(problem), runs, tuple(neighbours(runs))))
    return views


def findings(view: View) -> list[str]:
    """Return sentences on failed runs, the causes of large steps, and changed decisions."""
    # 1. What did not run, by the reason.
    failed: dict[str, list[str]] = {}
    for run in view.runs:
        if not run.is_ok:
            reason = run.cell.reason or run.cell.status
            failed.setdefault(reason.rstrip("."), []).append(run.name)
    by_number = sorted(failed.items(), key=lambda item: -len(item[1]))
    sentences = [f"{listing(names)} could not be run: {reason}." for reason, names in by_number]
    if failed:
        sentences.insert(0, f"{len(view.ran)} of {len(view.runs)} {view.kind} could be run.")
    # 2. What changed the calls.
    sentences += [sentence for step in view.steps for sentence in step_sentences(view, step)]
    # 3. What changed decisions.
    changed: dict[str, list[str]] = {}
    for step in view.steps:
        changed.setdefault(view.decision(step), []).append(step.after.name)
    if other := changed.get("other plan"):
        sentences.append(f"{listing(other, most=9)}: another decision than before.")
    elif len(view.ran) > 1:
        sentences.append(f"All {len(view.ran)} {view.kind} make the same decision.")
    if estimated := changed.get("other estimate"):
        sentences.append(f"{listing(estimated, most=9)}: the same decision with another estimate.")
    return sentences


def step_sentences(view: View, step: Step) -> list[str]:
    """Return a sentence per part: the change of its calls, and the functions behind the change."""
    sentences = []
    for part in view.changed_parts(step):
        before, after = step.before.calls(part), step.after.calls(part)
        times = number(float(step.factor(f"{part}_calls")), trim=True)
        sentence = (
            f"{step.after.name}: {part} makes {times} times the calls of {step.before.name} "
            f"({sum(after.values()):,} after {sum(before.values()):,})"
        )
        sentences.append(f"{sentence}{_makers(before, after)}.")
    return sentences


def _makers(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Name the functions that make most of the added calls, or made most of the removed ones."""
    added = sum(after.values()) >= sum(before.values())
    changed = Counter(after) - Counter(before) if added else Counter(before) - Counter(after)
    makers = dict(changed.most_common(_MOST_MAKERS))
    if not makers:
        return ""
    share = 100 * sum(makers.values()) / changed.total()
    named = listing([f"{name} ({calls:,})" for name, calls in makers.items()])
    return f"; {share:.0f} % of those {'added are' if added else 'saved were'} made by {named}"


def caveat(step: Step) -> str:
    """Return why a step's commit may not be the cause, or that it touches no declared path."""
    if step.suspects:
        names = listing([commit.name for commit in step.suspects])
        return f"or {names} before it, which could not be run"
    return "touches none of the files asked about" if step.is_outside else ""


def rows(view: View) -> list[Row]:
    """Return the row of each release or commit in `history.csv`; a value is None if unknown."""
    steps = {step.after.point.id: step for step in view.steps}
    row_of = _release_row if view.kind == "releases" else _commit_row
    return [row_of(view, run, steps.get(run.point.id)) for run in view.runs]


def _decision(view: View, run: Run, step: Step | None) -> str:
    return view.decision(step) if step else "first" if run.is_ok else "not run"


def _commit_row(view: View, run: Run, step: Step | None) -> Row:
    cell, point = run.cell, run.point
    return {
        "commit": point.id,
        "date": point.date,
        "title": point.title,
        "pull_request": point.pull_request,
        "status": cell.status,
        "reason": cell.reason or "",
        "same_files_as": "" if cell.variant == point.id else cell.variant,
        "fingerprint": cell.fingerprint or "",
        "cpu_s": cell.cpu_s.median if cell.cpu_s else None,
        **{name: run.value(name) if run.is_ok else None for name in view.declared.figures},
        **{f"{p}_times": step.factor(f"{p}_calls") if step else None for p in view.parts},
        "decision": _decision(view, run, step),
        "caveat": caveat(step) if step else "",
    }


def _release_row(view: View, run: Run, step: Step | None) -> Row:
    cell, part = run.cell, view.parts[0]
    calls = f"{part}_calls"
    row: Row = {
        "problem": view.problem,
        "release": run.name,
        "calls": run.value(calls) if run.is_ok else None,
        "times_previous": step.factor(calls) if step else None,
        "times_oldest": Step(view.ran[0], run).factor(calls) if run.is_ok else None,
    }
    # The CPU times of the part and of the rest are by their shares in the phases of one plan.
    times: Sequence[float | None] = [None] * 3
    if cell.cpu_s and cell.phases:
        times = (cell.cpu_s.median, min(cell.cpu_s.samples), max(cell.cpu_s.samples))
    share = cell.phases.get(part, 0.0) / (sum(cell.phases.values()) or 1.0)
    for name, of in (("profiled", share), ("rest", 1 - share)):
        keys = (f"{name}_cpu_s", f"{name}_cpu_s_low", f"{name}_cpu_s_high")
        row |= {key: time and of * time for key, time in zip(keys, times, strict=True)}
    low, high = cell.ratio.interval if cell.ratio else (None, None)
    return row | {
        "ratio": cell.ratio and cell.ratio.value,
        "ratio_low": low,
        "ratio_high": high,
        **{n: cell.counters.get(n, 0) if run.is_ok else None for n in view.declared.counters},
        **cell.quality,
        "fingerprint": cell.fingerprint or "",
        "decision": _decision(view, run, step),
        "not_run": "" if run.is_ok else cell.reason or cell.status,
    }


def main_table(view: View) -> Table:
    """Return a table of all releases, or of the commits that changed the calls or the decision."""
    if view.kind == "commits":
        return commits_table(view, [_commit_row(view, step.after, step) for step in view.steps])
    part, counter = view.parts[0], next(iter(view.declared.counters))
    return table_of(
        rows(view),
        code("release"),
        numbers(f"calls of\n{part}", "calls", count),
        numbers("to\nprev.", "times_previous"),
        numbers("to\nfirst", "times_oldest"),
        numbers(f"CPU ms of\n{part}", _span),
        numbers("ms of\nthe rest", "rest_cpu_s", lambda time: number(1e3 * time)),
        numbers("time to\nfirst", "ratio"),
        numbers(counter.replace("_", "\n"), counter, count),
        text("decision"),
    )


def commits_table(view: View, rows: Sequence[Row], *figures: str) -> Table:
    """Return a table of commits: the changes of calls, these figures, the decision and a remark."""

    def title(row: Row) -> Entry:
        number = row["pull_request"]
        return Entry(row["title"] + (number and f" (#{number})"), link=view.address(number))

    def remark(row: Row) -> str:
        same = row["same_files_as"] and f"the files of {row['same_files_as'][:9]}"
        return str(row["caveat"] or row["reason"] or same)

    return table_of(
        rows,
        code("commit", lambda row: row["commit"][:9]),
        text("date"),
        *(numbers(f"{part}\ncalls", f"{part}_times") for part in view.parts),
        *(numbers(name, name, count) for name in figures),
        text("decision"),
        text("title", title),
        text("remark", remark),
    )


def _span(row: Row) -> Entry | None:
    """Return the CPU milliseconds of the profiled part, with its range on a second line."""
    ends = [row[f"profiled_cpu_s{end}"] for end in ("", "_low", "_high")]
    if ends[0] is None:
        return None
    median, low, high = (1e3 * end for end in ends)
    return Entry(with_interval(median, low, high).replace(" (", "\n("), median)

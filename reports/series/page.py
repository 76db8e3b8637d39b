"""A series of releases or commits as tables, CSV rows and a Markdown page; commits also as HTML."""

import math
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from harness.series.points import Run
from harness.series.steps import Step
from reports.core.drawing.canvas import Drawing
from reports.core.formatting import MISSING, count, number, plural, with_interval
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text
from reports.core.templating import render
from reports.series.figure import SLUG
from reports.series.view import (
    Span,
    View,
    caveats,
    changed_figures,
    findings,
    span_of,
    step_sentences,
)

# The greatest load average per core at which CPU times are not called noisy.
_QUIET = 1.1

Row = tuple[Step | None, Run]
"""A point, and the step that leads to it, if any."""


def tables(view: View) -> dict[str, Table]:
    """Return tables by heading: all releases, or the commits that changed calls or decisions."""
    if view.kind == "releases":
        steps = {step.after.name: step for step in view.steps}
        return {"": _table(view, [(steps.get(run.name), run) for run in view.runs])}
    return {
        "Commits that changed the calls": _table(view, [(s, s.after) for s in view.large]),
        "Commits that changed decisions": _table(view, [(s, s.after) for s in view.deciding]),
    }


def _table(view: View, rows: Iterable[Row]) -> Table:
    if view.kind == "releases":
        columns = (code("release", lambda row: row[1].name), *_release_columns(view))
    else:
        columns = (code("commit", lambda row: row[1].name), *_commit_columns(view))
    return table_of(rows, *columns)


def _release_columns(view: View) -> Iterator[TableColumn]:
    part, counter = view.parts[0], next(iter(view.declared.counters))

    def counted(name: str, run: Run) -> Entry:
        value = run.value(name) if run.is_ok else math.nan
        return Entry(MISSING) if math.isnan(value) else Entry(count(value), value)

    def spent(span: Span | None, *, ranged: bool) -> Entry:
        if span is None:
            return Entry(MISSING)
        median, low, high = (1e3 * value for value in span)
        written = with_interval(median, low, high).replace(" (", "\n(")
        return Entry(written if ranged else number(median), median)

    def to_first(row: Row) -> Entry:
        return _factor(Step(view.ran[0], row[1]) if row[1].is_ok else None, part)

    def decision(row: Row) -> str:
        step, run = row
        return (view.decision(step) or "same") if step else "first" if run.is_ok else "not run"

    yield numbers(f"calls of\n{part}", lambda row: counted(f"{part}_calls", row[1]))
    yield numbers("to\nprev.", lambda row: _factor(row[0], part))
    yield numbers("to\nfirst", to_first)
    yield numbers(f"CPU ms of\n{part}", lambda row: spent(span_of(row[1], part), ranged=True))
    yield numbers(
        "ms of\nthe rest", lambda row: spent(span_of(row[1], part, rest=True), ranged=False)
    )
    yield numbers(counter.replace("_", "\n"), lambda row: counted(counter, row[1]))
    yield text("decision", decision)


def _commit_columns(view: View) -> Iterator[TableColumn]:
    def factor(part: str) -> TableColumn:
        return numbers(f"{part}\ncalls", lambda row: _factor(row[0], part))

    def title(row: Row) -> str:
        caveat = caveats(row[0]) if row[0] else ""
        return row[1].point.title + (f" ({caveat})" if caveat else "")

    def pull_request(row: Row) -> Entry:
        asked = row[1].point.pull_request
        return Entry(f"#{asked}", link=address_of(view, row[1])) if asked else Entry(MISSING)

    yield text("date", lambda row: row[1].point.date)
    yield from map(factor, view.parts)
    yield text("decision", lambda row: view.decision(row[0]) or "same")
    yield text("PR", pull_request)
    yield text("title", title)


def _factor(step: Step | None, part: str) -> Entry:
    value = step.factor(f"{part}_calls") if step else math.nan
    return Entry(number(float(value)), value)


def address_of(view: View, run: Run) -> str:
    """Return the URL of a commit's pull request, or "" if the commit has none."""
    commits, asked = view.declared.commits, run.point.pull_request
    return commits.pull_requests.format(number=asked) if commits and asked else ""


def data(views: Sequence[View]) -> pd.DataFrame:
    """Return a row for each release or commit of a series, on each problem."""
    make_row = _release_row if views[0].kind == "releases" else _commit_row
    return pd.DataFrame([make_row(view, run) for view in views for run in view.runs])


def _release_row(view: View, run: Run) -> dict[str, str | float]:
    row: dict[str, str | float] = {"problem": view.problem, "release": run.name}
    if not run.is_ok:
        return row | {"not_run": run.cell.reason or run.cell.status}
    part = view.parts[0]
    calls, cell = f"{part}_calls", run.cell
    step = next((step for step in view.steps if step.after is run), None)
    row["calls"] = run.value(calls)
    row["times_previous"] = step.factor(calls) if step else math.nan
    row["times_oldest"] = Step(view.ran[0], run).factor(calls)
    for name, rest in (("profiled", False), ("rest", True)):
        if span := span_of(run, part, rest=rest):
            row[f"{name}_cpu_s"] = span.median
            row[f"{name}_cpu_s_low"] = span.low
            row[f"{name}_cpu_s_high"] = span.high
    if cell.ratio:
        row["ratio"] = cell.ratio.value
        row["ratio_low"], row["ratio_high"] = cell.ratio.interval
    row |= {name: cell.counters.get(name, 0) for name in view.declared.counters}
    is_other = step is not None and step.decision_changed
    decision = "changed" if is_other else "same" if step else "first"
    return row | {
        **cell.quality,
        "fingerprint": cell.fingerprint or "",
        "decision": decision,
        "not_run": "",
    }


def _commit_row(view: View, run: Run) -> dict[str, object]:
    point, cell = run.point, run.cell
    return {
        "commit": point.id,
        "date": point.date,
        "title": point.title,
        "pull_request": point.pull_request,
        "status": cell.status,
        "reason": cell.reason or "",
        "same_files_as": "" if run.is_own else cell.variant,
        "fingerprint": cell.fingerprint or "",
        "cpu_s": cell.cpu_s.median if cell.cpu_s else None,
        **({name: run.value(name) for name in view.declared.figures} if run.is_ok else {}),
    }


def markdown_page(views: Sequence[View], command: str, figure: str) -> str:
    """Return a series as Markdown, with the command that made it and the figure's file, if any."""
    return render(
        "series.md.j2",
        declared=views[0].declared,
        kind=views[0].kind.removesuffix("s"),
        chapters=[(view.problem, tables(view), findings(view)) for view in views],
        command=command,
        figure=figure,
        how=how_measured(views),
    )


def how_measured(views: Sequence[View]) -> str:
    """Describe how the releases or commits of a series were measured."""
    view = views[-1]
    where = view.runs[-1].cell.environment
    packages = ", ".join(f"{name} {version}" for name, version in where.packages.items())
    kind, commits = view.kind.removesuffix("s"), view.declared.commits
    written = (
        f"Each {kind} ran{' from its checkout' if kind == 'commit' else ''} in a child process of "
        f"its own on Python {where.python} with {packages or 'no other package'}, on {where.cpu} "
        f"({where.cores} cores). Calls are Python calls, built-in functions included; they are "
        "exact. "
    )
    if kind == "commit" and commits:
        return (
            f"{written}Commits that have the same files in {', '.join(commits.paths)} are run "
            "once. Both sides of a step are run themselves, and so is the parent of the commit "
            "that is named."
        )
    turns = max(view.turns for view in views)
    if not turns:
        return f"{written}CPU times were not measured."
    load = max(run.cell.environment.load or 0.0 for view in views for run in view.runs)
    return (
        f"{written}CPU times are medians of up to {plural(turns, 'turn')}, in which the releases "
        "ran one after the other, forwards and backwards; their parts are by the shares in one "
        f"plan. The load was at most {load:g} a core"
        + ("." if load <= _QUIET else ", so the times are noisy: compare counts.")
    )


def html_page(view: View, drawing: Drawing | None, table: pd.DataFrame, command: str) -> str:
    """Return the commits of a series as one HTML file that loads nothing from the network."""
    cards = [
        {
            "step": step,
            "run": step.after,
            "address": address_of(view, step.after),
            "caveat": caveats(step),
            "decision": view.decision(step),
            "sentences": step_sentences(view, step),
            "changed": [
                (name, count(one), count(two), number(two / one) if one else "")
                for name, one, two in changed_figures(view.declared.figures, step)
            ],
        }
        for step in reversed(view.steps)
    ]
    return render(
        "commits.html.j2",
        generator="shardbench history",
        view=view,
        drawing=drawing,
        slug=SLUG,
        cards=cards,
        findings=findings(view),
        command=command,
        how=how_measured([view]),
        steps={step.after.point.id for step in view.steps},
        data=table,
        written=lambda value: count(value) if math.isfinite(value) else MISSING,
        tables=tables(view),
    )

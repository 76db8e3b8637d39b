"""A library's history by commits: its table, and one page that needs no network."""

import pandas as pd

from harness.series.running import Run
from harness.series.steps import Step
from reports.core.drawing.canvas import Drawing
from reports.core.formatting import MISSING, count, hundredths, number
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text
from reports.core.templating import render
from reports.series.commits import (
    CommitHistory,
    commit_findings,
    counters_changed,
    doubts,
    step_sentences,
)
from reports.series.commits_figure import SLUG, draw_commits


def steps_table(history: CommitHistory, steps: tuple[Step, ...]) -> Table:
    """Return a row for each step: when, which commit, by how much, and what it is called."""

    def factor(part: str) -> TableColumn:
        def entry(step: Step) -> Entry:
            value = step.factor(f"{part}_calls")
            return Entry(hundredths(value), value)

        return numbers(f"{part}\ncalls", entry)

    def title(step: Step) -> str:
        doubt = doubts(step)
        return step.after.commit.title + (f" ({doubt})" if doubt else "")

    def pull_request(step: Step) -> Entry:
        commit, address = step.after.commit, history.declared.pull_requests
        link = address.format(number=commit.pull_request) if address else ""
        if not commit.pull_request:
            return Entry(MISSING)
        return Entry(f"#{commit.pull_request}", link=link)

    return table_of(
        steps,
        code("commit", lambda each: each.after.commit.short),
        text("date", lambda each: each.after.commit.date),
        *map(factor, history.declared.parts),
        text("decision", lambda each: history.decision(each) or "same"),
        text("PR", pull_request),
        text("title", title),
    )


def data(history: CommitHistory) -> pd.DataFrame:
    """Return a row for each commit: what it counts and decides, and whose files it has."""
    return pd.DataFrame([_row(history, run) for run in history.runs])


def _row(history: CommitHistory, run: Run) -> dict[str, object]:
    declared, cell = history.declared, run.cell
    names = [*declared.calls, *declared.counters, *(each.name for each in declared.qualities)]
    return {
        "commit": run.commit.id,
        "date": run.commit.date,
        "title": run.commit.title,
        "pull_request": run.commit.pull_request,
        "status": cell.status,
        "reason": cell.reason or "",
        "same_files_as": "" if run.is_own else cell.variant,
        "fingerprint": cell.fingerprint or "",
        "cpu_s": cell.cpu_s.median if cell.cpu_s else None,
        **({name: run.value(name) for name in names} if run.is_ok else {}),
    }


def page(history: CommitHistory, command: str) -> tuple[str, Drawing | None]:
    """Return the page, and its figure; the command behind it is named."""
    found = data(history)
    drawing = draw_commits(history, found)
    cards = [
        {
            "step": step,
            "commit": step.after.commit,
            "address": history.declared.pull_requests.format(number=step.after.commit.pull_request)
            if step.after.commit.pull_request
            else "",
            "doubt": doubts(step),
            "decision": history.decision(step),
            "sentences": step_sentences(history, step),
            "changed": [
                (name, _written(one), _written(two), number(two / one) if one else "")
                for name, one, two in counters_changed(history, step)
            ],
        }
        for step in reversed(history.steps)
    ]
    written = render(
        "commits.html.j2",
        generator="shardbench history",
        history=history,
        drawing=drawing,
        slug=SLUG,
        cards=cards,
        findings=commit_findings(history),
        command=command,
        environment=history.runs[-1].cell.environment,
        told={step.after.commit.id for step in history.steps},
        data=found,
        written=_written,
        tables={
            "calls": steps_table(history, history.dearer),
            "decisions": steps_table(history, history.deciding),
        },
    )
    return written, drawing


def _written(value: float) -> str:
    return count(value) if value == value else MISSING


def markdown_page(history: CommitHistory, command: str, figure: str) -> str:
    """Return the history as Markdown, with the command behind it and its figure's file, if any."""
    return render(
        "commits.md.j2",
        history=history,
        command=command,
        figure=figure,
        findings=commit_findings(history),
        calls=steps_table(history, history.dearer),
        decisions=steps_table(history, history.deciding),
        environment=history.runs[-1].cell.environment,
    )

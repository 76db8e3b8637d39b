"""`shardbench history`: the same problem on one commit of a library after another."""

import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.abilities.history import History
from harness.contract.family import Family, load
from harness.contract.registry import Registry
from harness.model.errors import UsageError, unknown
from harness.model.ids import ProblemId
from harness.series.repository import Commit, Repository
from harness.series.running import Run, Runner
from harness.series.steps import DECISION, Step, changes, figures_of, find, steps
from harness.topologies.lookup import placed_on
from reports.core.escaping import csv
from reports.core.formatting import count, number, plural
from reports.core.terminal import as_terminal
from reports.series.commits import (
    CommitHistory,
    commit_findings,
    counters_changed,
    doubts,
    step_sentences,
)
from shardbench import completion, display
from shardbench.command import resumable
from shardbench.options import check_folder, check_seconds, found_registry, messages, write
from shardbench.results_file import measuring_into


def history(
    library: Annotated[
        str,
        typer.Argument(
            help="The library, e.g. torchrec.", autocompletion=completion.libraries_with_history
        ),
    ],
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="[RANGE]",
            help="A..B: both commits and all between that touch what decides; either may be left "
            "out. All up to HEAD without it.",
        ),
    ] = "",
    repository: Annotated[
        Path,
        typer.Option(
            "--repository", "-r", help="A clone of the library's repository; bare will do."
        ),
    ] = Path(),
    problem: Annotated[
        str,
        typer.Option("--problem", "-p", help="A problem, workload/topology:gpus."),
    ] = "",
    sought: Annotated[
        str,
        typer.Option(
            "--find",
            metavar="COUNTER",
            help="Bisect A..B for the commit that changed this counter, quality, or 'decision'.",
        ),
    ] = "",
    judged: Annotated[
        bool,
        typer.Option("--gate", help="Judge B by A alone, as the gate does, with its exit codes."),
    ] = False,
    least: Annotated[
        float, typer.Option(help="Tell commits that change the calls by this factor, or more.")
    ] = 1.1,
    repeat: Annotated[int, typer.Option(help="Calls of each commit to time; none by default.")] = 0,
    jobs: Annotated[int, typer.Option(help="Commits that run at a time.")] = 1,
    budget: Annotated[float, typer.Option(help="Seconds that a commit may take.")] = 300.0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the history; history/LIBRARY by default."),
    ] = None,
) -> None:
    """Run the commits of a library on one problem: what each changed.

    Nothing is installed: a commit runs from its checkout. What was counted is kept, and a command
    that was stopped goes on there.
    """
    check_seconds("--budget", budget)
    if not 1 <= least < float("inf"):
        raise UsageError(f"--least must be a factor of at least 1, not {least:g}.")
    for option, value, lowest in (("--repeat", repeat, 0), ("--jobs", jobs, 1)):
        if value < lowest:
            raise UsageError(f"{option} must be at least {lowest}, not {value}.")
    family, declared = _library(found_registry(), library)
    known = (*figures_of(declared), DECISION)
    if sought and sought not in known:
        raise unknown("counter or quality", sought, known)
    asked = ProblemId.parse(problem or declared.problems[0])
    family.label(asked.workload)  # raises where there is no such workload
    topology = placed_on(family, asked.workload, asked.topology, asked.gpus)
    source = Repository(repository)
    first, last = _range(source, wanted)
    folder = out or Path("history", library)
    check_folder(folder)
    results = folder / "history.jsonl"
    with measuring_into(results), resumable(results):
        runner = Runner(declared, source, asked, topology, results, budget, repeat, jobs)
        if sought:
            _find(runner, first, last, sought)
        elif judged:
            _gate(runner, first, last, least, folder)
        else:
            _all(runner, _commits(source, declared, first, last), least, folder)


def _library(registry: Registry, name: str) -> tuple[Family[Any, Any], History]:
    declared = ((each, load(each.abilities.history)) for each in registry.families)
    found = {each.library: (family, each) for family, each in declared if each}
    if name not in found:
        raise unknown("library with a history,", name, found)
    return found[name]


def _range(source: Repository, wanted: str) -> tuple[Commit | None, Commit]:
    before, dots, after = wanted.partition("..")
    if wanted and not dots:
        raise UsageError(f"RANGE must be A..B, A.. or ..B, not '{wanted}'.")
    first = source.commit(before) if before else None
    last = source.commit(after or "HEAD")
    if first and not source.is_ancestor(first, last):
        raise UsageError(f"{before} does not come before {after or 'HEAD'}.")
    return first, last


def _commits(
    source: Repository, declared: History, first: Commit | None, last: Commit
) -> list[Commit]:
    found = source.commits(first, last, declared.paths)
    if first:
        found.insert(0, first)
    if not found:
        raise UsageError(f"No commit of the range touches {', '.join(declared.paths)}.")
    return found


def _all(runner: Runner, commits: list[Commit], least: float, folder: Path) -> None:
    done = 0

    def listen(run: Run) -> None:
        nonlocal done
        done += 1
        what = run.cell.reason or ", ".join(
            f"{count(run.value(name))} {name}" for name in runner.declared.calls
        )
        messages.print(f"{done} {run.commit.short} {run.commit.date} {what}")

    runs = runner.run_all(commits, listen)
    found = steps(runner, runs, changes(runner.declared, least))
    whole = CommitHistory(runner.declared, str(runner.problem), tuple(runs), tuple(found), least)
    _write(whole, folder)
    display.show(_shown(whole))
    messages.print(f"Wrote the history to {folder}")
    if not whole.ran:
        raise typer.Exit(1)


def _write(whole: CommitHistory, folder: Path) -> None:
    from reports.series import commits_page as pages  # takes a while to import

    command = shlex.join(["shardbench", *sys.argv[1:]])
    html, drawing = pages.page(whole, command)
    if drawing is not None:
        write(folder / "history.svg", drawing.svg)
        write(folder / "history.png", drawing.png)
    write(folder / "history.csv", csv(pages.data(whole)))
    own = (run.commit.id for run in whole.ran if run.is_own)
    write(folder / "commits.txt", "".join(f"{each}\n" for each in own))  # for asv's HASHFILE
    figure = "history.svg" if drawing else ""
    write(folder / "history.md", pages.markdown_page(whole, command, figure))
    write(folder / "index.html", html)


def _shown(whole: CommitHistory) -> RenderableType:
    from reports.series.commits_page import steps_table

    parts: list[RenderableType] = [Text(whole.problem, style="bold"), ""]
    tables = {"Commits that changed the calls": whole.dearer, "Decisions": whole.deciding}
    for title, found in tables.items():
        if found:
            parts += [as_terminal(steps_table(whole, found), title), ""]
    said = [Text(f"* {each}") for each in commit_findings(whole)]
    return Group(*parts, *said, "")


def _gate(runner: Runner, first: Commit | None, last: Commit, least: float, folder: Path) -> None:
    from harness.series.judging import judge
    from harness.suites.gate import HARNESS_FAILED
    from reports.gate import page as pages

    if first is None:
        raise UsageError("--gate needs a range A..B.")
    before, after = (runner.run(each, own=True) for each in (first, last))
    if not before.is_ok:
        messages.print(f"{first.short} does not run: {before.cell.reason}", style="red")
        raise typer.Exit(HARNESS_FAILED)
    verdict = judge(runner.declared, before, after, least)
    whole = CommitHistory(
        runner.declared, str(runner.problem), (before, after), (Step(before, after),), least
    )
    said = [] if not after.is_ok else step_sentences(whole, whole.steps[0])
    content = pages.markdown(verdict, said, [])
    write(folder / "verdict.md", content)
    display.show(
        Group(
            pages.headline(verdict),
            *(Text(_difference(row)) for row in pages.rows(verdict.judged)),
            *said,
        )
    )
    raise typer.Exit(verdict.exit_code)


def _difference(row: Any) -> str:
    return f"  {row.what}: {row.measured} after {row.expected}, {row.change}"


def _find(runner: Runner, first: Commit | None, last: Commit, sought: str) -> None:
    if first is None:
        raise UsageError("--find needs a range A..B.")
    found = find(runner, first, last, sought)
    whole = CommitHistory(runner.declared, str(runner.problem), (), tuple(found), 1.0)
    lines: list[RenderableType] = []
    for step in found:
        commit = step.after.commit
        lines.append(Text(f"{commit.short} {commit.date} {commit.title}", style="bold"))
        if commit.pull_request and runner.declared.pull_requests:
            lines.append(runner.declared.pull_requests.format(number=commit.pull_request))
        if doubt := doubts(step):
            lines.append(f"It {doubt}.")
        for name, one, two in counters_changed(whole, step):
            factor = step.factor(name)
            times = f", {number(factor)} times" if math.isfinite(factor) else ""
            lines.append(f"  {name}: {count(two)} after {count(one)}{times}")
        if step.decision_changed:
            lines.append("  It makes another plan.")
        lines += [f"  {each}" for each in step_sentences(whole, step)]
    display.show(Group(*lines, ""))
    messages.print(f"{plural(runner.ran, 'commit')} run; the rest was known.")

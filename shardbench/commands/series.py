"""`shardbench releases` and `shardbench history`: measure releases and commits of a library."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Family, Series, Topology
from harness.gate.judging import HARNESS_FAILED
from harness.model.cell import Cell
from harness.model.errors import ShardbenchError, UsageError, unknown
from harness.model.ids import ProblemId
from harness.series.installing import (
    INSTALLED,
    RELEASES_FOLDER,
    Place,
    given_place,
    install,
    installed_place,
    kept_releases,
    releases_in,
    releases_on_index,
)
from harness.series.points import DECISION, Kind, Point, Run, Step, libraries
from harness.series.repository import Repository
from harness.series.running import Runner, measure_releases, settings_of
from harness.series.steps import difference, find, judge, steps
from harness.store.cells import CellStore
from harness.topologies.lookup import placed_on
from reports.core.formatting import count, csv, number, plural
from reports.core.terminal import as_terminal
from reports.series import View, findings, main_table, release_views, step_sentences
from shardbench import completion, display, options
from shardbench.command import command
from shardbench.commands.gate import GateCommand
from shardbench.options import check_folder, found_registry, messages, warn, write
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into


def _library(name: str, kind: Kind) -> tuple[Family[Any, Any], Series]:
    """Return a library's family and declaration; UsageError, with similar names, if unknown."""
    known = libraries(found_registry(), kind)
    if name not in known:
        raise unknown(f"library with {kind} to measure,", name, known)
    return known[name]


def _placed(family: Family[Any, Any], text: str) -> tuple[ProblemId, Topology]:
    """Return a problem and its machines; UsageError for an unknown workload or topology."""
    asked = ProblemId.parse(text)
    family.label(asked.workload)  # raises for an unknown workload
    return asked, placed_on(family, asked.workload, asked.topology, asked.gpus)


def _report(views: Sequence[View], folder: Path) -> None:
    """Write the figure, the CSV and the page of a series, and show its tables and findings.

    Exit with 1 if no release or commit ran.
    """
    from reports.series_page import data, draw, page  # slow to import

    table = data(views)
    drawing = draw(views, table)
    write(folder / "history.csv", csv(table))
    if drawing is not None:
        write(folder / "history.svg", drawing.svg)
    typed = shlex.join(["shardbench", *sys.argv[1:]])
    write(folder / "index.html", page(views, table, drawing, typed).html())
    parts: list[RenderableType] = []
    for view in views:
        parts.append(Text(view.problem, style="bold"))
        if (shown := main_table(view)).rows:
            parts.append(as_terminal(shown))
        parts += [*(Text(f"* {sentence}") for sentence in findings(view)), ""]
    display.show(Group(*parts))
    messages.print(f"Wrote the history to {folder}")
    if not any(view.ran for view in views):
        raise click.exceptions.Exit(1)


@command("shardbench releases torchrec 1.5.0..1.9.2")
@click.argument(
    "library", help="The library, e.g. torchrec.", shell_complete=completion.libraries("releases")
)
@click.argument(
    "wanted",
    nargs=-1,
    metavar="RELEASE",
    help="Releases: 1.5.0, 1.5.0..1.9.2 for a range, or installed for this environment's "
    "own. Without any, those that are installed already.",
)
@click.option(
    "--problem",
    "-p",
    multiple=True,
    help="A problem, workload/topology:gpus; may be given again. By default, those that "
    "the library declares.",
)
@click.option(
    "--at", multiple=True, help="VERSION=FOLDER: a release in a folder; may be given again."
)
@click.option(
    "--folder",
    type=options.PATH,
    default=RELEASES_FOLDER,
    help="Install releases here, each in a folder of its own.",
)
@click.option("--repeat", type=click.IntRange(2), default=5, help="Turns that each release takes.")
@click.option(
    "--seconds",
    type=options.POSITIVE,
    default=120.0,
    help="Seconds to spend on timing a problem; two blocks are timed in any case.",
)
@options.budget(300.0)
@options.machine
@click.option(
    "--out",
    type=options.PATH,
    default=Path("history"),
    help="Folder for the history, its figure and its page.",
)
def releases(
    library: str,
    wanted: tuple[str, ...],
    problem: tuple[str, ...],
    at: tuple[str, ...],
    folder: Path,
    repeat: int,
    seconds: float,
    budget: float,
    out: Path,
) -> None:
    """Compare the releases of a library on the same problems.

    Installs missing releases first, each in its own folder.
    """
    base, declared = _library(library, "releases")
    problems = [_placed(base, text) for text in problem or declared.problems]
    given = [given_place(library, text) for text in at]
    words = wanted or ([] if given else kept_releases(library, folder) or [INSTALLED])
    names = releases_in(words, lambda: _on_index(library, folder))
    check_folder(out)
    places = {place.release: place for place in given}
    for name in names:
        if name not in places:
            place = _place(declared, name, folder)
            places[place.release] = place
    settings = settings_of(repeat, seconds, budget)
    cells: list[Cell] = []
    store = CellStore(out / "history.jsonl")
    with measuring_into(store):
        for asked, topology in problems:
            what = (declared, base, asked, topology, [*places.values()], settings, store)
            with progress_display(str(asked)) as listen:
                cells += measure_releases(*what, listen)
    _report(release_views(declared, cells), out)


def _on_index(library: str, folder: Path) -> Sequence[str]:
    try:
        return releases_on_index(library)
    except ShardbenchError as error:
        warn(f"{error} A range has only the releases that are installed.")
        return kept_releases(library, folder)


def _place(declared: Series, name: str, folder: Path) -> Place:
    """Return the place of a release, which is installed if it is missing, or the reason."""
    library = declared.library
    if name == INSTALLED:
        return installed_place(library)
    by_hand = declared.releases.by_hand if declared.releases else ""
    try:
        if by_hand and name not in kept_releases(library, folder):
            raise ShardbenchError(f"{library} {name} is not installed: {by_hand}")
        return install(library, name, folder)
    except ShardbenchError as error:
        warn(str(error))
        return Place(name, missing=str(error))


@command(
    "shardbench history torchrec v2026.01.26.00.. --repository torchrec",
    "shardbench history torchrec A..B --repository torchrec --find search_calls",
    cls=GateCommand,
)
@click.argument(
    "library", help="The library, e.g. torchrec.", shell_complete=completion.libraries("commits")
)
@click.argument(
    "wanted",
    default="",
    metavar="[RANGE]",
    help="A..B: both commits, and all between that touch the files that decide; either may be left "
    "out. Without a range, all up to HEAD.",
)
@click.option(
    "--repository",
    "-r",
    type=options.PATH,
    default=Path(),
    help="A clone of the library's repository, bare or not.",
)
@click.option("--problem", "-p", default="", help="A problem, workload/topology:gpus.")
@click.option(
    "sought",
    "--find",
    default="",
    metavar="COUNTER",
    help="Bisect A..B for the commit that changed this counter, quality, or 'decision'.",
)
@click.option(
    "judged",
    "--gate",
    is_flag=True,
    help="Judge B by A alone, as the gate does, with its exit codes.",
)
@click.option(
    "--least",
    type=options.Number(min=1),
    default=1.1,
    help="Report commits that change the calls by this factor or more.",
)
@click.option(
    "--repeat",
    type=click.IntRange(0),
    default=0,
    help="Calls of each commit to time.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, help="Commits that run at a time.")
@options.budget(300.0)
@options.machine
@click.option(
    "--out", type=options.PATH, help="Folder for the history; history/LIBRARY by default."
)
def history(
    library: str,
    wanted: str,
    repository: Path,
    problem: str,
    sought: str,
    judged: bool,
    least: float,
    repeat: int,
    jobs: int,
    budget: float,
    out: Path | None,
) -> None:
    """Run the commits of a library on one problem, and report changes.

    A commit runs from its checkout, without installation. Results are stored, and a stopped
    command resumes from them.
    """
    family, declared = _library(library, "commits")
    if sought:
        difference(declared, [sought])  # raises for an unknown name
    asked, topology = _placed(family, problem or declared.problems[0])
    source = Repository(repository)
    first, last = _ends(source, wanted)
    if first is None and (sought or judged):
        raise UsageError(f"{'--find' if sought else '--gate'} needs a range A..B.")
    if source.caveat:
        warn(f"This is {source.path}{source.caveat}.")
    folder = out or Path("history", library)
    check_folder(folder)
    store = CellStore(folder / "history.jsonl")
    with measuring_into(store):
        runner = Runner(declared, source, asked, topology, store, budget, repeat, jobs)
        for note, amount in runner.notes.items():
            messages.print(f"{plural(amount, 'stored commit')} {note}.")
        if first is None or not (sought or judged):
            _all(runner, first, last, least, folder)
        elif sought:
            _find(runner, first, last, sought)
        else:
            _gate(runner, first, last, least, folder)


def _ends(source: Repository, wanted: str) -> tuple[Point | None, Point]:
    before, dots, after = wanted.partition("..")
    if wanted and not dots:
        raise UsageError(f"RANGE must be A..B, A.. or ..B, not '{wanted}'.")
    first = source.commit(before) if before else None
    last = source.commit(after or "HEAD")
    if first and not source.is_ancestor(first, last):
        raise UsageError(
            f"{before} does not come before {after or 'HEAD'} in {source.path}{source.caveat}."
        )
    return first, last


def _view(runner: Runner, runs: Sequence[Run], changes: Sequence[Step], least: float) -> View:
    problem = str(runner.problem)
    return View(runner.declared, "commits", problem, tuple(runs), tuple(changes), least)


def _all(runner: Runner, first: Point | None, last: Point, least: float, folder: Path) -> None:
    """Run the commits of a range that touch the declared paths, and report what changed."""
    declared, paths = runner.declared, runner.commits.paths
    commits = [*([first] if first else []), *runner.repository.commits(first, last, paths)]
    if not commits:
        raise UsageError(f"No commit of the range touches {', '.join(paths)}.")
    done = 0

    def listen(run: Run) -> None:
        nonlocal done
        done += 1
        counts = ", ".join(f"{count(run.value(name))} {name}" for name in declared.calls)
        messages.print(f"{done} {run.name} {run.point.date} {run.cell.reason or counts}")

    runs = runner.run_all(commits, listen)
    names = [*declared.calls, *(quality.name for quality in declared.qualities), DECISION]
    changes = steps(runner, runs, difference(declared, names, least))
    view = _view(runner, runs, list(changes), least)
    _report([view], folder)


def _gate(runner: Runner, first: Point, last: Point, least: float, folder: Path) -> None:
    """Judge the last commit of a range by the first; exit with the gate's code."""
    from reports import gate as pages

    before, after = (runner.run(commit, own=True) for commit in (first, last))
    if not before.is_ok:
        messages.print(f"{first.name} does not run: {before.cell.reason}", style="red")
        raise click.exceptions.Exit(HARNESS_FAILED)
    verdict = judge(runner.declared, before, after, least)
    step = Step(before, after)
    view = _view(runner, (before, after), (step,), least)
    sentences = step_sentences(view, step) if after.is_ok else []
    write(folder / "verdict.md", pages.markdown(verdict, sentences, []))
    display.show(Text(pages.plain(verdict, sentences, []).rstrip()))
    raise click.exceptions.Exit(verdict.exit_code)


def _find(runner: Runner, first: Point, last: Point, sought: str) -> None:
    """Bisect a range, and show the commit that changed a figure, with all that it changed."""
    changes = find(runner, first, last, sought)
    view = _view(runner, (), changes, 1.0)
    lines: list[RenderableType] = [as_terminal(main_table(view))]
    for step in changes:
        for name in runner.declared.figures:
            if step.change(name):
                before, after = (count(run.value(name)) for run in (step.before, step.after))
                times = number(step.factor(name))
                lines.append(f"{step.after.name}: {name}: {after} after {before}, {times} times")
        lines += step_sentences(view, step)
    display.show(Group(*lines, ""))
    messages.print(f"{plural(runner.ran, 'commit')} run; the rest was known.")

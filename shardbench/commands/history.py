"""`shardbench history`: run the commits of a library on one problem."""

import math
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Series
from harness.gate.judging import HARNESS_FAILED
from harness.model.errors import UsageError
from harness.model.ids import ProblemId
from harness.series.points import DECISION, Point, Run, Step
from harness.series.repository import Repository
from harness.series.running import Runner
from harness.series.steps import difference, find, judge, steps
from harness.store.cells import CellStore
from harness.store.keys import ELSEWHERE
from harness.topologies.lookup import placed_on
from reports.core.formatting import count, number, plural
from reports.series import View, caveats, step_sentences
from shardbench import completion, display, options
from shardbench.command import command
from shardbench.commands.gate import GateCommand
from shardbench.options import check_folder, found_registry, messages, warn, write
from shardbench.results_file import measuring_into
from shardbench.series import find_library, show_series, write_series


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
    family, declared = find_library(found_registry(), library, "commits")
    if sought:
        difference(declared, [sought])  # raises for an unknown name
    asked = ProblemId.parse(problem or declared.problems[0])
    family.label(asked.workload)  # raises for an unknown workload
    topology = placed_on(family, asked.workload, asked.topology, asked.gpus)
    source = Repository(repository)
    first, last = _ends(source, wanted)
    if source.caveat:
        warn(f"This is {source.path}{source.caveat}.")
    folder = out or Path("history", library)
    check_folder(folder)
    store = CellStore(folder / "history.jsonl")
    with measuring_into(store):
        runner = Runner(declared, source, asked, topology, store, budget, repeat, jobs)
        if runner.elsewhere:
            kept = plural(runner.elsewhere, "stored commit")
            messages.print(f"Used without times: {kept}, with {ELSEWHERE}.")
        for why, amount in runner.unused.items():
            messages.print(f"Not used: {plural(amount, 'stored commit')}, with {why}.")
        if not (sought or judged):
            _all(runner, _commits(source, declared, first, last), least, folder)
        elif first is None:
            raise UsageError(f"{'--find' if sought else '--gate'} needs a range A..B.")
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


def _commits(source: Repository, declared: Series, first: Point | None, last: Point) -> list[Point]:
    paths = declared.commits.paths if declared.commits else ()
    commits = [*([first] if first else []), *source.commits(first, last, paths)]
    if not commits:
        raise UsageError(f"No commit of the range touches {', '.join(paths)}.")
    return commits


def _all(runner: Runner, commits: list[Point], least: float, folder: Path) -> None:
    declared = runner.declared
    done = 0

    def listen(run: Run) -> None:
        nonlocal done
        done += 1
        counts = ", ".join(f"{count(run.value(name))} {name}" for name in declared.calls)
        messages.print(f"{done} {run.name} {run.point.date} {run.cell.reason or counts}")

    runs = runner.run_all(commits, listen)
    names = [*declared.calls, *(quality.name for quality in declared.qualities), DECISION]
    changes = tuple(steps(runner, runs, difference(declared, names, least)))
    view = View(declared, "commits", str(runner.problem), tuple(runs), changes, least)
    write_series([view], folder)
    show_series([view], folder)


def _gate(runner: Runner, first: Point, last: Point, least: float, folder: Path) -> None:
    from reports import gate as pages

    before, after = (runner.run(commit, own=True) for commit in (first, last))
    if not before.is_ok:
        messages.print(f"{first.name} does not run: {before.cell.reason}", style="red")
        raise click.exceptions.Exit(HARNESS_FAILED)
    verdict = judge(runner.declared, before, after, least)
    step = Step(before, after)
    view = View(runner.declared, "commits", str(runner.problem), (before, after), (step,), least)
    sentences = step_sentences(view, step) if after.is_ok else []
    write(folder / "verdict.md", pages.markdown(verdict, sentences, []))
    display.show(Text(pages.plain(verdict, sentences, []).rstrip()))
    raise click.exceptions.Exit(verdict.exit_code)


def _find(runner: Runner, first: Point, last: Point, sought: str) -> None:
    view = View(runner.declared, "commits", str(runner.problem), (), (), 1.0)
    lines: list[RenderableType] = []
    for step in find(runner, first, last, sought):
        commit = step.after.point
        lines.append(Text(f"{commit.name} {commit.date} {commit.title}", style="bold"))
        if address := view.address(commit.pull_request):
            lines.append(address)
        if caveat := caveats(step):
            lines.append(f"It {caveat}.")
        for name in runner.declared.figures:
            before, after = step.values(name)
            if before != after:
                factor = step.factor(name)
                times = f", {number(factor)} times" if math.isfinite(factor) else ""
                lines.append(f"  {name}: {count(after)} after {count(before)}{times}")
        if step.change(DECISION):
            lines.append("  It makes another plan.")
        lines += [f"  {sentence}" for sentence in step_sentences(view, step)]
    display.show(Group(*lines, ""))
    messages.print(f"{plural(runner.ran, 'commit')} run; the rest was known.")

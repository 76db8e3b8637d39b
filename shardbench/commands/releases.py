"""`shardbench releases`: the same problems on one release after another, as a history."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Family
from harness.contract.family import load
from harness.contract.registry import Registry
from harness.contract.releases import Releases
from harness.model.errors import ShardbenchError, UsageError, unknown
from harness.model.files import replace_file
from harness.model.ids import ProblemId
from harness.releases.history import History, NotRun, read_history
from harness.releases.installing import Place, given_place, install, installed_place
from harness.releases.measuring import (
    LEAST_ROUNDS,
    Asked,
    Measuring,
    Rule,
    environment_of,
    kept_releases,
)
from harness.releases.naming import INSTALLED, releases_in, releases_on_index
from harness.store.lock import hold
from harness.topologies.lookup import find_topology
from reports.formatting import number, plural
from reports.history import Chapter, Span, chapters, findings, ratio_to, times_text
from reports.tables.terminal import new_table
from shardbench import display
from shardbench.options import check_seconds, found_registry, messages, write

_DEFAULT_FOLDER = Path("upstreams/releases")


def releases(
    library: Annotated[str, typer.Argument(help="The library, e.g. torchrec.")],
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RELEASE...",
            help="Releases: 1.5.0, 1.5.0..1.9.2 for all between, or installed for this "
            "environment's own. Without any, those that are there already.",
        ),
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(
            "--problem",
            "-p",
            help="A problem, workload/topology:gpus; may be given again. The library's family has "
            "some of its own.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="VERSION=FOLDER: a release that is in a folder; may be given again."),
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Install releases here, each in a folder of its own.")
    ] = _DEFAULT_FOLDER,
    repeat: Annotated[int, typer.Option(help="Rounds in which all releases take turns.")] = 5,
    seconds: Annotated[
        float,
        typer.Option(help="Begin no further round of a problem after so long; two are made."),
    ] = 120.0,
    budget: Annotated[
        float, typer.Option(help="Seconds that one answer of a release may take.")
    ] = 300.0,
    out: Annotated[
        Path, typer.Option(help="Folder for the history, its figure and its page.")
    ] = Path("history"),
) -> None:
    """Install releases of a library, run each on the same problems, and draw the history."""
    check_seconds("--seconds", seconds)
    check_seconds("--budget", budget)
    if repeat < LEAST_ROUNDS:
        raise UsageError(f"--repeat must be at least {LEAST_ROUNDS}, not {repeat}.")
    family = _family(found_registry(), library)
    declared: Releases = load(family.abilities.releases)
    asked = [_asked(family, each) for each in problem or declared.problems]
    given = [given_place(declared.library, each) for each in at or ()]
    words = wanted or ([] if given else kept_releases(declared.library, folder) or [INSTALLED])
    names = releases_in(words, lambda: _on_index(declared.library, folder))
    path = out / "history.jsonl"
    _make_folder(out)
    with hold(path):
        history = read_history(
            path,
            declared.library,
            environment_of(declared),
            lambda sentence: messages.print(f"Damaged: {sentence}", style="yellow", soft_wrap=True),
        )
        places, shown = _places(declared, names, given, folder, history)
        with Measuring(declared, history, Rule(repeat, seconds, budget), _tell) as measuring:
            for each in asked:
                measuring.measure(each, places)
                _write(declared, history, asked, shown, out)
    found = _chapters(declared, history, asked, shown)
    display.show(Group(*(_shown(declared, each) for each in found)))
    _tell(f"Wrote the history to {out}")
    if not any(each.run for each in found):
        raise typer.Exit(1)


def _family(registry: Registry, library: str) -> Family[object, object]:
    known = {
        load(each.abilities.releases).library: each
        for each in registry.families
        if each.abilities.releases
    }
    if library not in known:
        raise unknown("library with releases to measure,", library, known)
    return known[library]


def _asked(family: Family[object, object], text: str) -> Asked:
    problem = ProblemId.parse(text)
    topology = find_topology(problem.topology, problem.gpus)
    label = family.label(problem.workload)
    return Asked(ProblemId(label, topology.name, problem.gpus), str(problem.workload), topology)


def _on_index(library: str, folder: Path) -> Sequence[str]:
    try:
        return releases_on_index(library)
    except ShardbenchError as error:
        _warn(f"{error} A range has only the releases that are installed.")
        return kept_releases(library, folder)


def _places(
    declared: Releases,
    names: Sequence[str],
    given: Sequence[Place],
    folder: Path,
    history: History,
) -> tuple[list[Place], list[str]]:
    """Return where the releases are, and the names of all that are asked for."""
    found = {each.release: each for each in given}
    asked = list(found)
    for name in names:
        if name in found:
            continue
        try:
            place = _place(declared, name, folder)
        except ShardbenchError as error:
            if name == INSTALLED:
                raise
            _warn(str(error))
            history.add(NotRun("", name, str(error)))
            asked.append(name)
            continue
        found[place.release] = place
        asked.append(place.release)
    return list(found.values()), asked


def _place(declared: Releases, name: str, folder: Path) -> Place:
    if name == INSTALLED:
        return installed_place(declared.library)
    if declared.by_hand and name not in kept_releases(declared.library, folder):
        raise ShardbenchError(f"{declared.library} {name} is not installed: {declared.by_hand}")
    return install(declared.library, name, folder)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Folder {out} cannot be written: {error.strerror}.") from None


def _chapters(
    declared: Releases, history: History, asked: Sequence[Asked], shown: Sequence[str]
) -> list[Chapter]:
    return chapters(declared, history, [str(each.problem) for each in asked], shown)


def _write(
    declared: Releases, history: History, asked: Sequence[Asked], shown: Sequence[str], out: Path
) -> None:
    from reports.history_page import data, draw, page  # takes a while to import

    found = _chapters(declared, history, asked, shown)
    drawing = draw(declared, found)
    write(out / "history.csv", data(declared, found).to_csv(index=False))
    if drawing is not None:
        write(out / "history.svg", drawing.svg)
        _write_bytes(out / "history.png", drawing.png)
    command = shlex.join(["shardbench", *sys.argv[1:]])
    figure = "history.svg" if drawing is not None else ""
    write(out / "history.md", page(declared, found, history.environment, command, figure))


def _write_bytes(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise ShardbenchError(f"{path} cannot be written: {error.strerror or error}.") from None


def _shown(declared: Releases, chapter: Chapter) -> RenderableType:
    counter = next(iter(declared.counters))
    counted = counter.replace("_", "\n")
    columns = ("calls", "to\nprev", "to\nfirst", "CPU ms", "range", "rest\nms", counted)
    table = new_table("", "release", *columns, "decision", right=columns)
    before = None
    reasons = []
    for each in chapter.releases:
        if each.counts is None:
            reasons.append(f"{each.name} was not run: {each.reason}")
            continue
        table.add_row(
            each.name,
            f"{each.counts.all_calls:,}",
            times_text(ratio_to(before, each)),
            times_text(ratio_to(chapter.run[0], each)),
            *_milliseconds(each.profiled),
            _milliseconds(each.rest)[0],
            f"{each.counts.counters.get(counter, 0):,}",
            each.decision,
        )
        before = each
    parts: list[RenderableType] = [Text(chapter.problem, style="bold")]
    if chapter.run:
        parts.append(table)
        note = f"calls, CPU ms: of {chapter.profiled}; rest: CPU ms of all else"
        parts.append(Text(f"{note}; {plural(len(chapter.rounds), 'round')}", style="dim"))
    parts += [Text(each, style="yellow") for each in reasons]
    return Group(*parts, "", *findings(chapter), "")


def _milliseconds(span: Span | None) -> tuple[str, str]:
    if span is None:
        return "-", "-"
    median, low, high = (
        number(1e3 * each, trim=True) for each in (span.median, span.low, span.high)
    )
    return median, f"{low}-{high}"


def _tell(text: str) -> None:
    messages.print(text, soft_wrap=True)


def _warn(text: str) -> None:
    messages.print(text, style="yellow", soft_wrap=True)

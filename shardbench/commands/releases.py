"""`shardbench releases`: the same problems on one release after another, as a history."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Family, Releases
from harness.contract.family import load
from harness.contract.registry import Registry
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import ShardbenchError, UsageError, unknown
from harness.model.ids import ProblemId
from harness.series.installing import (
    Missing,
    Place,
    given_place,
    install,
    installed_place,
    kept_releases,
)
from harness.series.measuring import measure, settings_of
from harness.series.naming import INSTALLED, releases_in, releases_on_index
from harness.series.variants import family_of
from harness.topologies.lookup import find_topology
from reports.core.escaping import csv
from reports.core.formatting import plural
from reports.core.terminal import as_terminal
from reports.series.releases import Chapter, chapters, history_findings
from shardbench import completion, display
from shardbench.command import resumable
from shardbench.options import check_folder, check_seconds, found_registry, messages, warn, write
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into

_LEAST_TURNS = 2
DEFAULT_FOLDER = Path("upstreams/releases")


def releases(
    library: Annotated[
        str, typer.Argument(help="The library, e.g. torchrec.", autocompletion=completion.libraries)
    ],
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RELEASE",
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
    ] = DEFAULT_FOLDER,
    repeat: Annotated[int, typer.Option(help="Turns that each release takes.")] = 5,
    seconds: Annotated[
        float,
        typer.Option(help="Take no further turns on a problem after so long; four are taken."),
    ] = 120.0,
    budget: Annotated[
        float, typer.Option(help="Seconds that one call of a release may take.")
    ] = 300.0,
    out: Annotated[
        Path, typer.Option(help="Folder for the history, its figure and its page.")
    ] = Path("history"),
) -> None:
    """Run releases of a library on the same problems: a history.

    Releases that are not there yet are installed first, each in a folder of its own.
    """
    check_seconds("--seconds", seconds)
    check_seconds("--budget", budget)
    if repeat < _LEAST_TURNS:
        raise UsageError(f"--repeat must be at least {_LEAST_TURNS}, not {repeat}.")
    base, declared = _library(found_registry(), library)
    problems = [ProblemId.parse(each) for each in problem or declared.problems]
    topologies = [find_topology(each.topology, each.gpus) for each in problems]
    for each in problems:
        base.label(each.workload)  # raises where there is no such workload
    given = [given_place(declared.library, each) for each in at or ()]
    words = wanted or ([] if given else kept_releases(declared.library, folder) or [INSTALLED])
    names = releases_in(words, lambda: _on_index(declared.library, folder))
    check_folder(out)
    places = _places(declared, names, given, folder)
    family = family_of(declared, places, base)
    settings = settings_of(repeat, seconds, budget)
    path = out / "history.jsonl"
    found: list[Cell] = []
    with measuring_into(path), resumable(path):
        for each, topology in zip(problems, topologies, strict=True):
            request = Request(family, each.workload, topology, purpose="releases")
            with progress_display(str(request.problem)) as listen:
                found += measure(request, declared, places, settings, path, listen)
            _write(declared, found, out)
    display.show(Group(*(_shown(declared, each) for each in chapters(declared, found))))
    messages.print(f"Wrote the history to {out}")
    if all(cell.status != "ok" for cell in found):
        raise typer.Exit(1)


def _library(registry: Registry, name: str) -> tuple[Family[Any, Any], Releases]:
    declared = ((load(each.abilities.releases), each) for each in registry.families)
    found = {each.library: (family, each) for each, family in declared if each}
    if name not in found:
        raise unknown("library with releases to measure,", name, found)
    return found[name]


def _on_index(library: str, folder: Path) -> Sequence[str]:
    try:
        return releases_on_index(library)
    except ShardbenchError as error:
        warn(f"{error} A range has only the releases that are installed.")
        return kept_releases(library, folder)


def _places(
    declared: Releases, names: Sequence[str], given: Sequence[Place], folder: Path
) -> list[Place | Missing]:
    """Return where the releases are that are asked for, and which cannot be installed."""
    found: dict[str, Place | Missing] = {each.release: each for each in given}
    for name in names:
        if name in found:
            continue
        try:
            place = _place(declared, name, folder)
            found[place.release] = place
        except ShardbenchError as error:
            if name == INSTALLED:
                raise
            warn(str(error))
            found[name] = Missing(name, str(error))
    return list(found.values())


def _place(declared: Releases, name: str, folder: Path) -> Place:
    if name == INSTALLED:
        return installed_place(declared.library)
    if declared.by_hand and name not in kept_releases(declared.library, folder):
        raise ShardbenchError(f"{declared.library} {name} is not installed: {declared.by_hand}")
    return install(declared.library, name, folder)


def _write(declared: Releases, cells: Sequence[Cell], out: Path) -> None:
    from reports.series.releases_page import data, draw, page  # takes a while to import

    found = chapters(declared, cells)
    drawing = draw(declared, found)
    write(out / "history.csv", csv(data(declared, found)))
    if drawing is not None:
        write(out / "history.svg", drawing.svg)
        write(out / "history.png", drawing.png)
    command = shlex.join(["shardbench", *sys.argv[1:]])
    figure = "history.svg" if drawing is not None else ""
    write(out / "history.md", page(declared, found, command, figure))


def _shown(declared: Releases, chapter: Chapter) -> RenderableType:
    from reports.series.releases_page import history_table

    parts: list[RenderableType] = [Text(chapter.problem, style="bold")]
    if chapter.run:
        note = f"calls: of {chapter.profiled}; {plural(chapter.rounds, 'turn')} of each release"
        parts += [as_terminal(history_table(declared, chapter)), Text(note, style="dim")]
    return Group(*parts, "", *history_findings(chapter), "")

"""`shardbench releases`: compare the releases of a library on the same problems."""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Series
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import ShardbenchError
from harness.model.ids import ProblemId
from harness.series.installing import (
    INSTALLED,
    Place,
    given_place,
    install,
    installed_place,
    kept_releases,
    releases_in,
    releases_on_index,
)
from harness.series.releases import family_of, measure, settings_of
from harness.store.cells import CellStore
from harness.topologies.lookup import find_topology
from reports.core.formatting import plural
from reports.series import View, findings, release_views
from shardbench import completion, display, options
from shardbench.command import command
from shardbench.options import check_folder, found_registry, messages, warn
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into
from shardbench.series import find_library, shown_tables, write_series

DEFAULT_FOLDER = Path("upstreams/releases")


@command("shardbench releases torchrec 1.5.0..1.9.2")
@click.argument(
    "library", help="The library, e.g. torchrec.", shell_complete=completion.libraries_with_releases
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
    default=DEFAULT_FOLDER,
    help="Install releases here, each in a folder of its own.",
)
@click.option("--repeat", type=click.IntRange(2), default=5, help="Turns that each release takes.")
@click.option(
    "--seconds",
    type=options.POSITIVE,
    default=120.0,
    help="Begin no further turns on a problem after this time; four are always taken.",
)
@click.option(
    "--budget",
    type=options.POSITIVE,
    default=300.0,
    help="Seconds that one call of a release may take.",
)
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
    base, declared = find_library(found_registry(), library, "releases")
    problems = [ProblemId.parse(text) for text in problem or declared.problems]
    topologies = [find_topology(asked.topology, asked.gpus) for asked in problems]
    for asked in problems:
        base.label(asked.workload)  # raises for an unknown workload
    given = [given_place(declared.library, text) for text in at]
    words = wanted or ([] if given else kept_releases(declared.library, folder) or [INSTALLED])
    names = releases_in(words, lambda: _on_index(declared.library, folder))
    check_folder(out)
    places = {place.release: place for place in given}
    for name in names:
        if name not in places:
            place = _place(declared, name, folder)
            places[place.release] = place
    family = family_of(declared, list(places.values()), base)
    settings = settings_of(repeat, seconds, budget)
    path = out / "history.jsonl"
    found: list[Cell] = []
    store = CellStore(path)
    with measuring_into(store):
        for asked, topology in zip(problems, topologies, strict=True):
            request = Request(family, asked.workload, topology, purpose="releases")
            with progress_display(str(request.problem)) as listen:
                found += measure(request, declared, [*places.values()], settings, store, listen)
            write_series(release_views(declared, found), out)
    display.show(Group(*(_shown(view) for view in release_views(declared, found))))
    messages.print(f"Wrote the history to {out}")
    if all(cell.status != "ok" for cell in found):
        raise click.exceptions.Exit(1)


def _on_index(library: str, folder: Path) -> Sequence[str]:
    try:
        return releases_on_index(library)
    except ShardbenchError as error:
        warn(f"{error} A range has only the releases that are installed.")
        return kept_releases(library, folder)


def _place(declared: Series, name: str, folder: Path) -> Place:
    """Return the place of a release, which is installed if it is missing.

    If that fails, the place has the reason.
    """
    if name == INSTALLED:
        return installed_place(declared.library)
    by_hand = declared.releases.by_hand if declared.releases else ""
    try:
        if by_hand and name not in kept_releases(declared.library, folder):
            raise ShardbenchError(f"{declared.library} {name} is not installed: {by_hand}")
        return install(declared.library, name, folder)
    except ShardbenchError as error:
        warn(str(error))
        return Place(name, missing=str(error))


def _shown(view: View) -> RenderableType:
    parts: list[RenderableType] = [Text(view.problem, style="bold")]
    if view.ran:
        note = f"calls: of {view.parts[0]}; {plural(view.turns, 'turn')} of each release"
        parts += [*shown_tables(view), Text(note, style="dim")]
    return Group(*parts, "", *findings(view), "")

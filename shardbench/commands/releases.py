"""`shardbench releases`: compare the releases of a library on the same problems."""

from collections.abc import Sequence
from pathlib import Path

import click

from harness.contract import Series
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
from harness.series.running import measure_releases, settings_of
from harness.store.cells import CellStore
from harness.topologies.lookup import find_topology
from reports.series import release_views
from shardbench import completion, options
from shardbench.command import command
from shardbench.options import check_folder, found_registry, warn
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into
from shardbench.series import find_library, show_series, write_series

DEFAULT_FOLDER = Path("upstreams/releases")


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
    default=DEFAULT_FOLDER,
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
    base, declared = find_library(found_registry(), library, "releases")
    problems = [ProblemId.parse(text) for text in problem or declared.problems]
    topologies = [find_topology(asked.topology, asked.gpus) for asked in problems]
    for asked in problems:
        base.label(asked.workload)  # raises for an unknown workload
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
        for asked, topology in zip(problems, topologies, strict=True):
            what = (declared, base, asked, topology, [*places.values()], settings, store)
            with progress_display(str(asked)) as listen:
                cells += measure_releases(*what, listen)
            write_series(release_views(declared, cells), out)
    show_series(release_views(declared, cells), out)


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

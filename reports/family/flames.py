"""The pages of flame graphs that go with a report on a family."""

from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path

from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from harness.model.statement import Pair
from reports.core.table import Entry, Table, table_of, text
from reports.family.data import FamilyView
from reports.family.ladder import ladder
from reports.statements import systems

_MARK = b'content="shardbench profile"'


def main_pair(family: FamilyView) -> list[Pair]:
    """Return today's release and ours of the first system with times of both, if any."""
    rows = systems(family.statements, {cell.id: cell for cell in family.records})
    pairs = [row.times.pair for row in rows if row.times.figure and not row.times.figure.sign]
    return pairs[:1]


def ladder_pairs(family: FamilyView) -> list[Pair]:
    """Return the ladder's measured variants, each with its predecessor; [] for fewer than two."""
    names = [rung.variant for rung in ladder(family) if rung.cell and rung.cell.cpu_s]
    pairs = zip(names, ["", *names[:-1]], strict=True) if len(names) > 1 else ()
    return [Pair(family.ladder_problem, before, variant) for variant, before in pairs]


def page_name(family: str, pair: Pair) -> str:
    """Return the file name of `shardbench profile` for a variant, or for a comparison of two."""
    names = "-against-".join(filter(None, (pair.after, pair.before)))
    return f"{CellId(family, names, ProblemId.parse(pair.problem)).file_stem}.flames.html"


def flame_pages(family: FamilyView, folders: Iterable[Path]) -> dict[str, bytes]:
    """Return the pages of a family in some folders by file name; other files are left out."""
    pages = {}
    for path in (
        path for folder in folders for path in folder.glob(f"{escape(family.name)}-*.html")
    ):
        try:
            content = read_file(path)
        except UsageError:  # it is no file
            continue
        if _MARK in content[:1000]:
            pages[path.name] = content
    return dict(sorted(pages.items()))


def flames_table(pages: Mapping[str, bytes]) -> Table:
    """Return a row per page, with a link to its place in the folder of the report."""

    def link(name: str) -> Entry:
        return Entry(name.removesuffix(".html").removesuffix(".flames"), link=f"flames/{name}")

    return table_of(pages, text("flame graphs of", link))

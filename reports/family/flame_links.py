"""Pages of flame graphs that a report links: which pairs of variants, and the pages there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape

from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from reports.core.table import Entry, Table, code, table_of, text
from reports.family.data import FamilyView
from reports.statements import systems

_MARK = b'content="shardbench profile"'


@dataclass(frozen=True, slots=True)
class FlamePair:
    """A variant on a problem, and the one `before` it to compare with, "" for none."""

    problem: str
    variant: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class FlamePage:
    """The HTML page of a pair's flame graphs, its file's `name`, and when it was `made`."""

    pair: FlamePair
    name: str
    content: bytes
    made: str = "with this report"

    @property
    def link(self) -> str:
        """The page's place in the folder of the report."""
        return f"flames/{self.name}"


def main_pair(family: FamilyView) -> list[FlamePair]:
    """Return today's release and ours of the first system with times of both, if any."""
    rows = systems(family.statements, {cell.id: cell for cell in family.records})
    pairs = [row.times.pair for row in rows if row.times.figure and not row.times.figure.sign]
    return [FlamePair(pair.problem, pair.after, pair.before) for pair in pairs[:1]]


def ladder_pairs(family: FamilyView) -> list[FlamePair]:
    """Return the ladder's measured variants, each with its predecessor; [] for fewer than two."""
    found = [rung.variant for rung in family.ladder if rung.cell and rung.cell.cpu_s]
    pairs = zip(found, ["", *found[:-1]], strict=True) if len(found) > 1 else ()
    return [FlamePair(family.ladder_problem, variant, before) for variant, before in pairs]


def page_name(family: str, pair: FlamePair) -> str:
    """Return the file name of `shardbench profile` for a variant, or for a comparison of two."""
    names = "-against-".join(filter(None, (pair.variant, pair.before)))
    return f"{CellId(family, names, ProblemId.parse(pair.problem)).file_stem}.flames.html"


def flame_pages(family: FamilyView, profiles: Path | None) -> list[FlamePage]:
    """Return the pages that the folder `profiles` has of the family's main pair and ladder."""
    pages = []
    for pair in dict.fromkeys((*main_pair(family), *ladder_pairs(family))):
        name = page_name(family.name, pair)
        content = _read_page(profiles / name, pair.problem) if profiles else None
        if content is not None:
            pages.append(FlamePage(pair, name, content))
    return pages


def _read_page(file: Path, problem: str) -> bytes | None:
    try:
        page = read_file(file)
    except UsageError:
        return None
    # Two ids may have the same file name, because some characters are replaced there.
    is_of_it = _MARK in page[:1000] and str(escape(problem)).encode() in page
    return page if is_of_it else None


def flames_table(pages: Sequence[FlamePage]) -> Table:
    """Return a row per page, with a link to it."""

    def shows(page: FlamePage) -> Entry:
        before = f" and {page.pair.before}" if page.pair.before else ""
        return Entry(f"{page.pair.variant}{before}", link=page.link)

    columns = (code("problem", lambda page: page.pair.problem), text("made", "made"))
    return table_of(pages, text("flame graphs of", shows), *columns)

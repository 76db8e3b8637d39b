"""The pages of flame graphs that go with a report on a family."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape

from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from harness.model.statement import Pair
from harness.suites.record import Record, profile_name
from reports.core.table import Entry, Table, code, table_of, text
from reports.family.data import FamilyView
from reports.family.ladder import ladder
from reports.statements import systems

_MARK = b'content="shardbench profile"'


@dataclass(frozen=True, slots=True)
class FlamePage:
    """The HTML page of a pair's flame graphs, its file's `name`, and when it was `made`."""

    pair: Pair
    name: str
    content: bytes
    made: str = "with this report"

    @property
    def link(self) -> str:
        """The page's place in the folder of the report."""
        return f"flames/{self.name}"


def main_pair(family: FamilyView) -> list[Pair]:
    """Return today's release and ours of the first system with times of both, if any."""
    rows = systems(family.statements, {cell.id: cell for cell in family.records})
    pairs = [row.times.pair for row in rows if row.times.figure and not row.times.figure.sign]
    return pairs[:1]


def ladder_pairs(family: FamilyView) -> list[Pair]:
    """Return the ladder's measured variants, each with its predecessor; [] for fewer than two."""
    found = [rung.variant for rung in ladder(family) if rung.cell and rung.cell.cpu_s]
    pairs = zip(found, ["", *found[:-1]], strict=True) if len(found) > 1 else ()
    return [Pair(family.ladder_problem, before, variant) for variant, before in pairs]


def page_name(family: str, pair: Pair) -> str:
    """Return the file name of `shardbench profile` for a variant, or for a comparison of two."""
    names = "-against-".join(filter(None, (pair.after, pair.before)))
    return f"{CellId(family, names, ProblemId.parse(pair.problem)).file_stem}.flames.html"


def flame_pages(
    family: FamilyView, profiles: Path | None, record: Record | None = None
) -> list[FlamePage]:
    """Return the pages of a family: of its main pair and ladder in `profiles`, then recorded ones.

    A recorded page shows one variant, or the one before a change and the one after it.
    """
    pages = []
    for pair in dict.fromkeys((*main_pair(family), *ladder_pairs(family))):
        name = page_name(family.name, pair)
        try:
            content = read_file(profiles / name) if profiles else b""
        except UsageError:  # there is no such page, or it is no file
            continue
        # Two ids may have the same file name, because some characters are replaced there.
        if _MARK in content[:1000] and str(escape(pair.problem)).encode() in content:
            pages.append(FlamePage(pair, name, content))
    if record is None:
        return pages
    runs = record.runs()
    for profile in record.declared.profile:
        path = record.page_of(profile)
        run = runs.get(profile_name(path))
        if profile.family == family.name and run and path.exists():
            *before, variant = profile.variants
            made = f"recorded {(run.environment.started or '')[:10]}"
            pair = Pair(profile.problem, "".join(before), variant)
            pages.append(FlamePage(pair, path.name, read_file(path), made))
    return pages


def flames_table(pages: Sequence[FlamePage]) -> Table:
    """Return a row per page, with a link to it."""

    def shows(page: FlamePage) -> Entry:
        before = f" and {page.pair.before}" if page.pair.before else ""
        return Entry(f"{page.pair.after}{before}", link=page.link)

    columns = (code("problem", lambda page: page.pair.problem), text("made", "made"))
    return table_of(pages, text("flame graphs of", shows), *columns)

"""Links to the flame graph of each step of a ladder, or else the command that makes it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape

from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from reports.core.table import Entry, Table, code, table_of, text
from reports.family.data import FamilyView
from reports.family.ladder import ladder

_MARK = b'content="shardbench profile"'
_NOT_MADE = Entry("not made yet")


@dataclass(frozen=True, slots=True)
class LadderStep:
    """A step of a ladder: a variant, and the one `before` it to compare with, "" at the start.

    `page` is the HTML that `shardbench profile` wrote about the step, or None without such a file.
    `name` is the page's file in the report, and `command` makes the page.
    """

    variant: str
    before: str
    name: str
    page: bytes | None
    command: str


def variant_pairs(family: FamilyView) -> list[tuple[str, str]]:
    """Return the ladder's measured variants, each with its predecessor; [] for fewer than two."""
    rungs = ladder(family)
    found = [str(name) for name in rungs["variant"][rungs["cpu_s"].notna()]]
    return list(zip(found, ["", *found[:-1]], strict=True)) if len(found) > 1 else []


def page_name(family: str, problem: str, variant: str, before: str = "") -> str:
    """Return the file name of `shardbench profile` for a variant, or for a comparison of two."""
    names = "-against-".join(filter(None, (variant, before)))
    return f"{CellId(family, names, ProblemId.parse(problem)).file_stem}.flames.html"


def ladder_steps(family: FamilyView, profiles: Path | None) -> list[LadderStep]:
    """Return the steps of the family's ladder, with their pages from the folder `profiles`."""
    problem = family.ladder_problem
    steps = []
    for number, (variant, before) in enumerate(variant_pairs(family), start=1):
        file = profiles and profiles / page_name(family.name, problem, variant, before)
        against = ["--against", before] if before else []
        command = ["shardbench", "profile", f"{family.name}/{variant}@{problem}", *against]
        name = f"{family.slug}-step-{number}.html"
        page = _read_page(file, problem) if file else None
        steps.append(LadderStep(variant, before, name, page, shlex.join(command)))
    return steps


def _read_page(file: Path, problem: str) -> bytes | None:
    try:
        page = read_file(file)
    except UsageError:
        return None
    # Two ids may have the same file name, because some characters are replaced there.
    is_of_it = _MARK in page[:1000] and str(escape(problem)).encode() in page
    return page if is_of_it else None


def flames_table(steps: Sequence[LadderStep]) -> Table:
    """Return a row per step, with a link to its page or the command that makes one."""

    def shows(step: LadderStep) -> str:
        return f"what changes from {step.before}" if step.before else "where its time goes"

    def link(step: LadderStep) -> Entry:
        made = step.page is not None
        return Entry(f"open {step.name}", link=f"flames/{step.name}") if made else _NOT_MADE

    columns = (text("what it shows", shows), text("flame graph", link), code("command"))
    return table_of(steps, code("step", "variant"), *columns)

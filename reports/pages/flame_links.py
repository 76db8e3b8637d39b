"""The flame graph of each step of a ladder: the page there is, or the command that makes it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape

from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from reports.tables.family import Entry, Row, Table, code_column, new_table
from reports.views.family import FamilyView, ladder

_MARK = b'content="shardbench profile"'


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a ladder: a variant, and the one before it that it is set against, "" at first.

    `page` is what `shardbench profile` wrote about it, None where there is no such file; `name` is
    its file in the report, and `command` what makes it.
    """

    variant: str
    before: str
    name: str
    page: bytes | None
    command: str


def pairs(family: FamilyView) -> list[tuple[str, str]]:
    """Return the steps of the ladder that were measured, each with the one before it."""
    rungs = ladder(family)
    found = [str(name) for name in rungs["variant"][rungs["cpu_s"].notna()]]
    return list(zip(found, ["", *found[:-1]], strict=True)) if len(found) > 1 else []


def page_name(family: str, problem: str, variant: str, before: str = "") -> str:
    """Return the file that `shardbench profile` writes about a variant, or two of them.

    Raises:
        UsageError: the names make no id.
    """
    names = "-against-".join(filter(None, (variant, before)))
    return f"{CellId(family, names, ProblemId.parse(problem)).file_stem}.flames.html"


def steps(family: FamilyView, profiles: Path | None) -> list[Step]:
    """Return the steps of the family's ladder, with the pages that a folder holds of them."""
    problem = family.ladder_problem
    return [
        Step(
            variant,
            before,
            f"{family.slug}-step-{number}.html",
            _page(profiles, family.name, problem, variant, before) if profiles else None,
            _command(family.name, problem, variant, before),
        )
        for number, (variant, before) in enumerate(pairs(family), start=1)
    ]


def _page(profiles: Path, family: str, problem: str, variant: str, before: str) -> bytes | None:
    try:
        page = read_file(profiles / page_name(family, problem, variant, before))
    except UsageError:
        return None
    # Two ids may share a file name, in which some characters are replaced.
    is_of_it = _MARK in page[:1000] and str(escape(problem)).encode() in page
    return page if is_of_it else None


def _command(family: str, problem: str, variant: str, before: str) -> str:
    against = ["--against", before] if before else []
    return shlex.join(["shardbench", "profile", f"{family}/{variant}@{problem}", *against])


def flames_table(found: list[Step]) -> Table:
    """Return a row per step, with a link to its page or the command that makes one."""
    rows: list[Row] = [(step.variant, _what(step), _link(step), step.command) for step in found]
    columns = (code_column("step"), "what it shows", "flame graph", code_column("command"))
    return new_table(columns, rows)


def _what(step: Step) -> str:
    return f"what changes from {step.before}" if step.before else "where its time goes"


def _link(step: Step) -> Entry:
    if step.page is None:
        return Entry("not made yet")
    return Entry(f"open {step.name}", link=f"flames/{step.name}")

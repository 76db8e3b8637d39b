"""The report of a results file."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from harness.measuring.selftest.file import last_selftests
from harness.model.errors import printable
from reports.findings.report import findings
from reports.formatting import plural
from reports.frames import Results, read_results
from reports.pages.family import family_sections
from reports.pages.flame_links import ladder_steps
from reports.pages.page import CaptionedTable, Page, PageChapter, PageSection, write_page
from reports.tables.provenance import environment_table, sources_table
from reports.views.family import FamilyView, environments, families, rows_of


def write_report(results: Path, out: Path, profiles: Path | None = None) -> Path:
    """Write the report of a results file into the folder `out`; return the path of its page.

    Flame graphs of the steps of a ladder that the folder `profiles` holds go with it. Raises
    UsageError where the results are unreadable, or `out` is not to be written, see `write_page`.
    """
    held = read_results(results)
    return write_page(out, lambda: _page(held, results.name, profiles))


def _page(results: Results, name: str, profiles: Path | None) -> Page:
    found = [(family, ladder_steps(family, profiles)) for family in families(results)]
    told = findings(results)
    if len(found) == 1:
        told = [replace(finding, family="") for finding in told]
    about = []
    for family, steps in found:
        sections = list(family_sections(family, results, steps))
        about.append(PageChapter(family.slug, family.name, sections, family.compared_with))
    machine = CaptionedTable(environment_table(results))
    machines = dict.fromkeys(each.get("machine") for each in environments(results))
    told_of_it = [each.sentence() for name in machines if name for each in last_selftests(name)]
    remarks = [*results.notes, *told_of_it]
    environment = PageSection("environment", tables=[machine], remarks=remarks)
    sources = [
        CaptionedTable(sources_table(family), f"The variants of {family.name}.")
        for family, _ in found
    ]
    how = PageChapter("how", "How to read this", list(_terms(found)), template="glossary.html.j2")
    return Page(
        name=printable(name),
        heading="shardbench report",
        lead=[f"{printable(name)}: {_overview(results)}"],
        findings=told,
        chapters=[
            *about,
            how,
            PageChapter("environment", "Environment", [environment]),
            PageChapter("sources", "Sources", [PageSection("sources", tables=sources)]),
        ],
        data={
            kind: getattr(results, kind) for kind in ("cells", "qualities", "counters", "phases")
        },
        files={
            f"flames/{step.name}": step.page
            for _, steps in found
            for step in steps
            if step.page is not None
        },
    )


def _terms(found: Iterable[tuple[FamilyView, object]]) -> Iterator[PageSection]:
    """Yield for each family what its qualities and counters mean."""
    for family, _ in found:
        terms = [
            (row["name"], row["meaning"], f"{row['unit'] or 'no unit'}, {row['better']} is better")
            for row in rows_of(family.qualities)
        ]
        terms += [(row["name"], row["meaning"], "a counter") for row in rows_of(family.counters)]
        if terms:
            title = f"Qualities and counters of {family.name}"
            yield PageSection(f"{family.slug}-terms", title, terms=tuple(dict.fromkeys(terms)))


def _overview(results: Results) -> str:
    starts = sorted(start for each in environments(results) for start in each["starts"])
    names = results.cells["family"].unique()
    parts = [
        plural(len(results.cells), "cell"),
        plural(results.cells["problem"].nunique(), "problem"),
        plural(len(names), "family") if len(names) > 1 else f"family {names[0]}",
    ]
    return ", ".join(parts) + (f"; measured from {_moment(starts[0])}" if starts else "")


def _moment(text: str) -> str:
    """Return an ISO 8601 time to the minute; other texts as they are."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:[\d.]+)?(Z|\+00:00)$", r"\1 \2 UTC", text)

"""The report of a results file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pandas as pd

from harness.estimates.validation import Validation
from harness.measuring.selftest.file import last_selftests
from harness.model.errors import printable
from reports.core.formatting import plural
from reports.core.frames import Results, read_results
from reports.core.page import (
    CaptionedTable,
    Finding,
    Page,
    Section,
    write_page,
)
from reports.estimates.page import read_validations, validation_chapter
from reports.family.data import FamilyView, environments, families, rows_of
from reports.family.flame_links import FlamePage, flame_pages
from reports.family.overview import overview
from reports.family.page import family_sections
from reports.report.answers import answers
from reports.report.figure import draw_gains, draw_published
from reports.report.findings import family_findings
from reports.report.recorded import Recorded
from reports.report.table import environment_table, gains_table, published_table, sources_table

_LEAD = (
    "Planners decide how a model is spread over GPUs. This page compares the planners of today's "
    "releases with ours: how long they take, and how good their decisions are by their own "
    "estimates. Planning runs on a CPU; no model was trained."
)
_NEUTRAL_LEAD = (
    "This page compares planners: how long they take, and how good their decisions are by their "
    "own estimates. Planning runs on a CPU; no model was trained."
)
_VERSIONS = 4


def write_report(
    results: Path,
    out: Path,
    profiles: Path | None = None,
    validations: Path | None = None,
    record: Path | None = None,
    title: str = "",
) -> Path:
    """Write the report of a results file into the folder `out`; return the path of its page.

    The report links the flame graphs in the folder `profiles`, and has a chapter on the files in
    the folder `validations`. It shows the record in the folder `record`, if there is one, next to
    the results. `title` replaces the page's heading. Raises UsageError if the results are
    unreadable, or `out` cannot be written, see `write_page`.
    """
    held = read_results(results)
    validated = read_validations(validations) if validations else []
    recorded = Recorded.read(record)
    return write_page(out, lambda: _page(held, results.name, profiles, validated, recorded, title))


def _page(
    results: Results,
    name: str,
    profiles: Path | None,
    validated: Sequence[Validation],
    recorded: Recorded,
    title: str,
) -> Page:
    found = families(results)
    pages = {
        family.name: [*flame_pages(family, profiles), *recorded.flame_pages(family.name)]
        for family in found
    }
    differences = list(recorded.disagreements(results))
    table = overview(found)
    chapters = [_chapter(family, pages[family.name], differences) for family in found]
    chapters += _published(recorded.with_claims(table), recorded)
    if validated:
        chapters.append(validation_chapter(validated))
    gains = CaptionedTable(gains_table(table, _flame_links(table, pages)))
    lead = _LEAD if table["declared"].any() else _NEUTRAL_LEAD
    return Page(
        name=printable(name),
        heading=printable(title) or "shardbench report",
        lead=[" ".join(filter(None, (lead, recorded.gpus()))), _measured_with(results)],
        answers=answers(found, results, recorded),
        opening=Section("overview", "Overview", drawings=list(draw_gains(table)), tables=[gains]),
        sections=[*chapters, _provenance(results, name, found)],
        data={
            kind: getattr(results, kind) for kind in ("cells", "qualities", "counters", "phases")
        },
        files={page.link: page.content for group in pages.values() for page in group},
    )


def _chapter(
    family: FamilyView,
    pages: Sequence[FlamePage],
    differences: Sequence[Finding],
) -> Section:
    found = family_findings(family, (one for one in differences if one.family == family.name))
    found = [replace(finding, family="") for finding in found]
    sections = list(family_sections(family, pages))
    return Section(
        family.slug, family.name, family.compared_with, findings=found, sections=sections
    )


def _published(table: pd.DataFrame, recorded: Recorded) -> Iterator[Section]:
    changes = published_table(table, recorded.reproductions())
    if changes.rows:
        yield Section(
            "published",
            "Published changes",
            "What was published about each system, and what became of it.",
            drawings=list(draw_published(table)),
            tables=[CaptionedTable(changes, recorded.provenance())],
        )


def _flame_links(table: pd.DataFrame, pages: Mapping[str, Sequence[FlamePage]]) -> dict[str, str]:
    """Return the link to the flame graphs of today's release and ours, by system."""
    links = {}
    for row in rows_of(table):
        both = {row["ours"], row["today"]}
        found = [p for p in pages[row["family"]] if {p.pair.variant, p.pair.before} == both]
        if found:
            here = [page for page in found if page.pair.problem == row["problem"]]
            links[row["system"]] = (here or found)[0].link
    return links


def _provenance(results: Results, name: str, found: Sequence[FamilyView]) -> Section:
    machine = CaptionedTable(environment_table(results))
    machines = dict.fromkeys(each.get("machine") for each in environments(results))
    selftests = [test.sentence() for name in machines if name for test in last_selftests(name)]
    remarks = [*results.notes, *selftests]
    sources = [
        CaptionedTable(sources_table(family), f"The variants of {family.name}.") for family in found
    ]
    sections = [
        Section("environment", "Environment", tables=[machine], remarks=remarks),
        Section("sources", "Sources", tables=sources),
    ]
    lead = f"{printable(name)}: {_contents(results)}."
    return Section("provenance", "Provenance", lead, sections=sections)


def _measured_with(results: Results) -> str:
    """Return a line with the last environment's machine and main versions, and counts of others."""
    held = environments(results)
    last = held[-1]
    packages = dict(islice((last.get("packages") or {}).items(), _VERSIONS))
    versions = {"python": last.get("python"), **packages}
    cores = plural(last["cores"], "core") if last.get("cores") else ""
    parts = [
        ", ".join(filter(None, (last.get("cpu"), cores))),
        *(f"{name} {version}" for name, version in versions.items() if version),
    ]
    if len(held) > 1:
        parts.append(f"and {plural(len(held) - 1, 'other environment')}")
    return " · ".join(filter(None, parts))


def _contents(results: Results) -> str:
    starts = sorted(start for held in environments(results) for start in held["starts"])
    names = results.cells["family"].unique()
    parts = [
        plural(len(results.cells), "cell"),
        plural(results.cells["problem"].nunique(), "problem"),
        plural(len(names), "family") if len(names) > 1 else f"family {names[0]}",
    ]
    return ", ".join(parts) + (f"; measured from {_moment(starts[0])}" if starts else "")


def _moment(text: str) -> str:
    """Shorten an ISO 8601 time in UTC to the minute; return other texts unchanged."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:[\d.]+)?(Z|\+00:00)$", r"\1 \2 UTC", text)

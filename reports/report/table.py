"""Tables of a report: our gains, published changes, environments, sources of variants."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from reports.core.formatting import (
    MISSING,
    count,
    factor,
    factor_with_interval,
    gap,
    number,
    percent,
    quantity,
)
from reports.core.frames import Results
from reports.core.table import Entry, Table, code, numbers, table_of, text
from reports.family.data import FamilyView, Row, environments, rows_of


def gains_table(overview: pd.DataFrame, flames: Mapping[str, str] | None = None) -> Table:
    """Return a row per system: what it is compared with, the speed-up, and what explains it.

    `flames` has the address of a page of flame graphs by system.
    """
    pages = flames or {}

    def flame_graphs(row: Row) -> Entry:
        page = pages.get(row["system"])
        return Entry("both", link=page) if page else Entry(MISSING)

    return table_of(
        rows_of(overview),
        text("system", lambda row: Entry(row["system"], link=f"#{row['slug']}")),
        text("compared with", lambda row: row["today_is"] or row["today"]),
        numbers("times as fast", lambda row: Entry(ours_text(row), row["times_as_fast"])),
        numbers("gap to the proven bound: of that, of the best", _gaps),
        text("repeated work of that", _repeated),
        *([text("flame graphs", flame_graphs)] if pages else []),
        code("problem"),
    )


def published_table(overview: pd.DataFrame, recorded: Mapping[str, str] | None = None) -> Table:
    """Return a row per system with a published change: its speed-up as claimed and as measured.

    `recorded` has the reproduction in the record by system, for a column of its own.
    """
    reproduced = recorded or {}
    column = text("recorded at that size", lambda row: reproduced.get(row["system"], MISSING))
    return table_of(
        rows_of(overview[overview["published"].notna()]),
        text("system", lambda row: Entry(row["system"], link=f"#{row['slug']}")),
        numbers("published", lambda row: Entry(published_text(row), row["published"])),
        *([column] if reproduced else []),
        numbers("measured here", _measured),
        text("measured on", lambda row: row["measured_on"] or MISSING),
    )


def published_text(row: Row) -> str:
    """Write a published speed-up, with the figures before and after in brackets."""
    if math.isnan(row["published"]):
        return MISSING
    before, after = (
        quantity(row[f"published_{when}"], row["published_unit"]) for when in ("before", "after")
    )
    unit = after.partition(" ")[2]  # write the unit once if both have the same
    return f"{factor(row['published'])} ({before.removesuffix(f' {unit}')} → {after})"


def ours_text(row: Row) -> str:
    """Write our speed-up; mark one that is not measured, or has another decision."""
    if row["basis"] != "measured":
        return f"≥ {factor(row['times_as_fast'])} ({row['basis']})"
    text = factor_with_interval(row["times_as_fast"], row["low"], row["high"])
    decides = {"own": ", another decision", "different": "different decision"}
    return text + decides.get(row["decision"], "") if text != MISSING else text


def _measured(row: Row) -> Entry:
    ends = row["measured_low"], row["measured_high"]
    return Entry(factor_with_interval(row["measured"], *ends), row["measured"])


def _repeated(row: Row) -> Entry:
    if not row["counter"]:
        return Entry(MISSING)
    work, enough = row["counter"].replace("_", " "), row["enough"]
    suffice = "suffices" if enough == 1 else "suffice"
    return Entry(f"{count(row['done'])} {work}; {count(enough)} {suffice}", row["done"])


def _gaps(row: Row) -> Entry:
    if math.isnan(row["gap_today"]) and math.isnan(row["gap_ours"]):
        return Entry(MISSING)
    today, ours = (_gap(row[f"gap_{whose}"]) for whose in ("today", "ours"))
    return Entry(f"{today}, {ours}", row["gap_ours"])


def _gap(share: float) -> str:
    return percent(share) if share >= 0.1 or share == 0 else gap(share)


def environment_table(results: Results) -> Table:
    """Return versions, machine, load and seed, a column per environment."""
    held = environments(results)
    packages = [found.get("packages") or {} for found in held]

    def row(name: str, found: Sequence[Row]) -> tuple[str, ...]:
        return (name, *(str(values.get(name, MISSING)) for values in found))

    rows = [
        ("cells", *(count(len(found["cells"])) for found in held)),
        *(row(name, held) for name in ("shardbench", "python")),
        *(row(name, packages) for name in dict.fromkeys(n for found in packages for n in found)),
        *(row(name, held) for name in ("machine", "cpu", "cores", "seed")),
        ("load", *(_range(found["loads"]) for found in held)),
        ("started", *(_range(found["starts"]) for found in held)),
    ]
    titles = [f"environment {n}" if len(held) > 1 else "value" for n in range(1, len(held) + 1)]
    columns = (text(title, place) for place, title in enumerate(titles, start=1))
    return table_of(rows, text("what", 0), *columns)


def _range(values: Sequence[float] | Sequence[str]) -> str:
    if not values:
        return MISSING
    low, high = (v if isinstance(v, str) else number(float(v)) for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def sources_table(family: FamilyView) -> Table:
    """Return a row per variant: its summary, the decision that it must reproduce, its source."""
    last = {row["variant"]: row for row in rows_of(family.cells)}
    must = text("must decide", _must)
    columns = (code("variant"), text("what it does", "summary"), must, text("source"))
    return table_of(last.values(), *columns)


def _must(row: Row) -> str:
    if row["variant"] == row["reference"]:
        return "it is the reference"
    return f"the same as {row['same_as']}" if row["same_as"] else "on its own"

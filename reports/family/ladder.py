"""The ladder, a sequence of variants (rungs) with published speed-ups: claimed, measured shares."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from reports.core.formatting import MISSING, change, number, seconds
from reports.core.table import (
    Entry,
    Table,
    code,
    interval_column,
    numbers,
    outcome_column,
    table_of,
    text,
)
from reports.family.data import FamilyView, Row, ratios, rows_of
from reports.family.quality import quality_columns


def published_shares(claims: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return the claimed share of the ladder's starting cost after each rung; NaN if unknown.

    A rung's share is the product of after / before over the claims so far, or only its own
    after / before if its `before` is the starting cost. A claim under other conditions than those
    of the first claim has no share.
    """
    start: tuple[float, str] | None = None
    conditions = None
    share = 1.0
    shares = []
    for claim in claims:
        before, after, unit = claim["claim_before"], claim["claim_after"], claim["claim_unit"]
        if not (before > 0 and after > 0) or (
            start is not None and claim["claim_conditions"] != conditions
        ):
            shares.append(math.nan)
            continue
        if start is None:
            start, conditions = (before, unit), claim["claim_conditions"]
        share = (1.0 if (before, unit) == start else share) * after / before
        shares.append(share)
    return shares


def ladder(family: FamilyView) -> pd.DataFrame:
    """Return published figures and measured ratios on `ladder_problem`, a row per rung.

    For `published_share` see `published_shares`; the reference has the share 1 if any rung has a
    claim. Ratios are of CPU time, lower is better.
    """
    rungs, cells = family.rungs, family.cells
    claims = cells.drop_duplicates("variant", keep="last").set_index("variant").loc[rungs]
    on_it = (cells["problem"] == family.ladder_problem) & (cells["against"] == family.reference)
    found = cells[on_it].set_index("variant").reindex(rungs)
    shares = pd.Series(published_shares(rows_of(claims)), index=rungs, dtype=float)
    if shares.notna().any() and family.reference in shares:
        shares = shares.fillna({family.reference: 1.0})
    published = claims[["claim_before", "claim_after", "claim_unit", "claim_conditions"]]
    table = published.rename(columns=lambda name: name.replace("claim", "published")).assign(
        published_share=shares,
        source=claims["source"],
        cpu_s=found["cpu_s"],
        ratio=ratios(found),
        low=found["ratio_low"],
        high=found["ratio_high"],
        pairs=found["pairs"],
        outcome=found["outcome"].fillna("not run"),
        decision=found["decision"].fillna(""),
    )
    return table.reset_index()


def claim_text(row: Row) -> str:
    """Write a rung's published figures, or the reason why it has none."""
    known = not math.isnan(row["published_after"])
    step = change(row["published_before"], row["published_after"], row["published_unit"])
    if not math.isnan(row["published_share"]):
        return f"{number(row['published_share'])} ({step})" if known else "the published start"
    if known:
        return f"{step} published, on another problem"
    if row["source"] == "shardbench":
        return "ours, not upstream"
    return f"no figure published ({row['source']})" if row["source"] else "no figure published"


def ladder_table(family: FamilyView, flames: Mapping[str, str]) -> Table:
    """Return a row per rung on `ladder_problem`: claim, measurement, first quality.

    `flames` has the address of a page of flame graphs by variant.
    """

    def flame_graphs(row: Row) -> Entry:
        page = flames.get(row["variant"])
        return Entry("open", link=page) if page else Entry(MISSING)

    steps = ladder(family)
    claims = [
        numbers("published step", _published),
        numbers("published share", "published_share"),
    ]
    return table_of(
        rows_of(steps),
        code("variant"),
        *(claims if steps["published_share"].notna().any() else []),
        numbers("measured share", "ratio"),
        interval_column("interval", "low", "high"),
        numbers("CPU time", "cpu_s", seconds),
        outcome_column(),
        *quality_columns(family, family.ladder_problem, first=True),
        *([text("flame graphs", flame_graphs)] if flames else []),
    )


def _published(row: Row) -> Entry | None:
    after = row["published_after"]
    if after != after:
        return None
    return Entry(change(row["published_before"], after, row["published_unit"]), after)

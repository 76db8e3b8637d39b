"""The ladder, a sequence of variants (rungs) with published speed-ups: claimed, measured shares."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from reports.core.formatting import change, number
from reports.family.data import FamilyView, Row, ratios, rows_of


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

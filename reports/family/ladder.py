"""The ladder, a sequence of variants (rungs) with published speed-ups: claimed, measured shares."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREY, PALE, Drawing
from reports.core.formatting import change, listing, number
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


def draw_ladder(family: FamilyView) -> Iterator[Drawing]:
    """Draw published and measured shares of the ladder, if two or more rungs were measured."""
    table = ladder(family)
    if table["ratio"].notna().sum() < 2:
        return
    figure, axes = canvas.new_figure(0.9 + 0.62 * len(table))
    claimed = table["published_share"].notna().any()
    for place, row in enumerate(rows_of(table)):
        name, ends = row["variant"], (row["low"], row["high"])
        if claimed:
            look: dict[str, Any] = {"color": PALE, "edgecolor": GREY, "text_colour": GREY}
            shown = (row["published_share"], _claim(row), f"{name}, published")
            canvas.draw_bar(axes, place - 0.2, *shown, height=0.34, **look)
        look = {"color": BLUE, "edgecolor": BLUE}
        shown = (row["ratio"], _measured(row), name)
        middle = place + 0.2 if claimed else place
        canvas.draw_bar(axes, middle, *shown, ends, height=0.34, **look)
    scale = f"share of {family.reference}'s cost (lower is better)"
    canvas.name_rows(axes, table["variant"].tolist(), scale)
    caption = f"Measured on `{family.ladder_problem}`."
    if claimed:
        measured = canvas.key("measured CPU time, with interval", linewidth=7, color=BLUE)
        canvas.legend_above(figure, canvas.key("published", linewidth=7, color=PALE), measured)
        conditions = listing(list(dict.fromkeys(filter(None, table["published_conditions"]))))
        caption += (
            " Published shares are what remains of the ladder's start, step by step; they were "
            f"measured elsewhere{f': {conditions}' if conditions else ''}."
        )
    canvas.make_room(axes)
    title = "Claimed and measured" if claimed else "Measured shares"
    yield canvas.finish(figure, f"{family.slug}-ladder", title, caption, table)


def _measured(row: Row) -> str:
    if math.isnan(row["ratio"]):
        return str(row["outcome"])
    return "1, the reference" if row["outcome"] == "reference" else number(row["ratio"])


def _claim(row: Row) -> str:
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

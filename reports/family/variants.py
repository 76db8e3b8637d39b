"""The variants of a family side by side, each view the data of one figure and its CSV file."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from reports.core.formatting import number, progress
from reports.core.frames import DIFFERENT
from reports.family.data import FamilyView, rows_of

_TRADEOFF = [
    *("variant", "cpu_s", "ratio", "decision", "quality", "bound", "gap"),
    *("name", "unit", "better"),
]
_SPEEDUPS = [
    *("problem", "against", "variant", "cpu_s", "times_as_fast", "low", "high", "projected"),
    *("outcome", "decision", "quality", "bound", "gap"),
]


def published_shares(claims: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return what claims leave of their ladder's start, rung by rung; NaN where there is none.

    A rung's share is the product of after / before over the claims so far, or after / before
    itself where the claim counts from the ladder's start again. A claim of other conditions than
    the first has no share: it was measured on something else.
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
    """Return the ladder on its problem: published figures beside the measured ratio, by rung.

    For `published_share` see `published_shares`; the reference is the start, with a share of 1,
    where any rung has a claim. Ratios are of CPU time, lower is better.
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
        ratio=_ratios(found),
        low=found["ratio_low"],
        high=found["ratio_high"],
        pairs=found["pairs"],
        outcome=found["outcome"].fillna("not run"),
        decision=found["decision"].fillna(""),
    )
    return table.reset_index()


def _ratios(cells: pd.DataFrame) -> "pd.Series[float]":
    return cells["ratio"].mask(cells["outcome"] == "reference", 1.0)


def ladder_by_problem(family: FamilyView) -> pd.DataFrame:
    """Return the ratio of every rung but the reference, a row per problem compared with it."""
    steps = [rung for rung in family.rungs if rung != family.reference]
    cells = family.cells[family.cells["against"] == family.reference]
    cells = cells[cells["variant"].isin(steps)]
    table = cells.pivot(index="problem", columns="variant", values="ratio")
    return table.reindex(index=list(cells["problem"].unique()), columns=steps)


def speedups(family: FamilyView) -> pd.DataFrame:
    """Return how many times as fast each variant is where another than the reference is compared.

    A row per cell of such problems. `low` and `high` are the interval; where the variant compared
    with was stopped there is none, and `projected` says that the figure is from its projection.
    """
    cells = family.cells[family.cells["against"] != family.reference]
    stopped = cells[(cells["variant"] == cells["against"]) & (cells["status"] == "over budget")]
    # An empty column has the type of what it is mapped from, which cannot be divided.
    projection = cells["problem"].map(stopped.set_index("problem")["projection_s"]).astype(float)
    projected = (projection / cells["wall_s"]).where(
        (cells["status"] == "ok") & (projection > 0) & (cells["wall_s"] > 0)
    )
    best = family.primary_qualities.set_index("cell")["value"]
    table = cells.assign(
        times_as_fast=projected.fillna(1 / _ratios(cells)),
        low=1 / cells["ratio_high"],
        high=1 / cells["ratio_low"],
        projected=projected.notna(),
        decision=[family.whose_decision(row) for row in rows_of(cells)],
        quality=cells["cell"].map(best).astype(float),
    )
    places = {problem: place for place, problem in enumerate(family.against)}
    table = table.sort_values("problem", key=lambda names: names.map(places), kind="stable")
    return table[_SPEEDUPS].reset_index(drop=True)


def tradeoff(family: FamilyView) -> pd.DataFrame:
    """Return time beside the first quality on one problem: a row per variant that has both.

    Variants with a different decision are left out: their time buys something else.
    """
    cells = family.cells[family.cells["problem"] == family.quality_problem]
    cells = cells[(cells["cpu_s"] > 0) & (cells["outcome"] != DIFFERENT)]
    best = family.primary_qualities[["cell", "value", "name", "unit", "better"]]
    table = cells.merge(best.rename(columns={"value": "quality"}), on="cell")
    whose = [family.whose_decision(row) for row in rows_of(table)]
    return table.assign(ratio=_ratios(table), decision=whose)[_TRADEOFF]


def phase_times(family: FamilyView) -> pd.DataFrame:
    """Return phases on one problem in CPU seconds of a timed call, by variant and phase.

    Shares come from one observed call, which is slower and was made at another moment, so they are
    scaled to what the timed calls took; `observed_s` is what was observed. Variants with a
    different decision are left out, as in `tradeoff`.
    """
    cells = family.cells[family.cells["problem"] == family.phase_problem]
    cells = cells[cells["outcome"] != DIFFERENT]
    phases = family.phases[family.phases["cell"].isin(cells["cell"])]
    phases = phases.rename(columns={"seconds": "observed_s"})
    observed = phases.groupby("cell")["observed_s"].transform("sum")
    # An empty column has the type of the cells' ids, which cannot be multiplied.
    whole = phases["cell"].map(_timed(cells)).astype("float64").fillna(observed)
    phases = phases.assign(seconds=phases["share"] * whole)
    return phases[["variant", "name", "seconds", "share", "observed_s"]].reset_index(drop=True)


def _timed(cells: pd.DataFrame) -> "pd.Series[float]":
    """Return CPU seconds of a timed call by cell, from the ratio where there is one.

    A ratio is paired, so what it makes of the reference's time is free of the machine's drift.
    """
    reference = cells.loc[cells["outcome"] == "reference", "cpu_s"]
    paired = cells["ratio"] * (reference.iloc[0] if len(reference) else math.nan)
    timed: pd.Series[float] = paired.fillna(cells["cpu_s"]).set_axis(cells["cell"])
    return timed


def counts(family: FamilyView) -> pd.DataFrame:
    """Return counters on the problem of the ladder, a row per variant and a column per counter."""
    counters = family.counters[family.counters["problem"] == family.ladder_problem]
    table = counters.pivot(index="variant", columns="name", values="value")
    rows = [name for name in family.variants if name in table.index]
    return table.reindex(index=rows, columns=list(counters["name"].unique()))


def stopped_at(cell: Mapping[str, Any]) -> str:
    """Say in brackets how far an over-budget cell came, and what that projects; "" if unknown."""
    return progress(
        cell["progress_done"],
        cell["progress_total"],
        cell["progress_unit"],
        cell["progress_elapsed_s"],
        cell["projection_s"],
    )


def factor(row: Mapping[str, Any]) -> str:
    """Write how many times as fast a row of `speedups` is, and whether that is projected."""
    text = number(row["times_as_fast"])
    return f"≥ {text} (projected)" if row["projected"] else text

"""Findings on measurements: speed-ups, phases, quality, growth with size."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from reports.core.formatting import (
    change,
    count,
    gap,
    hundredths,
    interval,
    listing,
    names,
    number,
    percent,
    plural,
    quantity,
    seconds,
    times,
    with_interval,
)
from reports.core.frames import DIFFERENT
from reports.core.page import Finding
from reports.family.data import FamilyView, rows_of
from reports.family.ladder import ladder
from reports.family.quality import tradeoff

_UNATTRIBUTED = "other"
_UNCHANGED = 0.9


def effects(family: FamilyView) -> Iterator[Finding]:
    """Yield findings on the published change, on phases, qualities and growth with size."""
    for tell in (_published, _phases, _quality, _gaps, _growth):
        yield from tell(family)


def _published(family: FamilyView) -> Iterator[Finding]:
    """Compare the last rung with a published figure with its claim."""
    rungs = ladder(family)
    compared = rungs[rungs["low"].notna() & (rungs["outcome"] != "reference")]
    claimed = compared[compared["published_share"].notna()]
    if claimed.empty:
        return
    rung = rows_of(claimed.tail(1))[0]
    sentence = (
        f"Published: `{rung['variant']}` is {times(rung['published_share'])} as "
        f"`{family.reference}`; here it {effect(rung, family.reference)}"
        f"{_sameness(family, rung)}."
    )
    steps = [
        f"{change(row['published_before'], row['published_after'], row['published_unit'])} for "
        f"`{row['variant']}`"
        for row in rows_of(rungs[rungs["published_after"].notna()])
    ]
    ends = interval(rung["low"], rung["high"])
    taken = f"{number(rung['ratio'])} of the reference's CPU time (interval {ends})"
    detail = f"On `{family.ladder_problem}` it takes {taken}; published were {listing(steps)}."
    yield Finding("published", sentence, detail)


def effect(row: dict[str, Any], reference: str) -> str:
    """Write how a variant's time compares with that of `reference`."""
    if row["outcome"] == "same":
        return f"takes the same time as `{reference}`"
    if row["outcome"] in ("faster", "slower"):
        return f"is {times(row['ratio'])} as `{reference}`"
    return f"cannot be distinguished from `{reference}` in time"


def _sameness(family: FamilyView, row: dict[str, Any]) -> str:
    cells = family.cells[family.cells["variant"] == row["variant"]]
    same = int((cells["decision"] == "same").sum())
    decided = same + int((cells["decision"] == "different").sum())
    if not decided:
        return ", with a decision of its own" if (cells["decision"] == "own").any() else ""
    if same == decided:
        return " and makes the same decision"
    return f" and makes the same decision on {same} of {plural(decided, 'problem')}"


def _phases(family: FamilyView) -> Iterator[Finding]:
    """Compare the phases' times before and after the ladder, and explain the total's change."""
    phases = _phase_times(family)
    spent = phases.pivot(index="name", columns="variant", values="seconds")
    spent = spent.reindex(index=phases["name"].unique()).fillna(0.0)
    reference = family.against[family.phase_problem]
    if reference not in spent or not spent[reference].sum() > 0:
        return
    before = spent[reference]
    rungs = ladder(family)
    reached = rungs[(rungs["decision"] == "same") & rungs["variant"].isin(spent.columns)]
    claimed = reached[reached["published_share"].notna()]
    if family.phase_problem != family.ladder_problem or reached.empty:
        shares = _shares(before.sort_values(ascending=False), before.sum())
        yield Finding(
            "phases",
            f"Most of `{reference}`'s time goes to {shares}.",
            f"On `{family.phase_problem}`, by the shares of one observed call.",
        )
        return
    fastest = str(reached.nsmallest(1, "ratio")["variant"].iloc[0])
    last_claimed = str(claimed["variant"].iloc[-1]) if len(claimed) else fastest
    for rung in dict.fromkeys((last_claimed, fastest)):
        # Unattributed time names no phase, and a total of zero has no shares.
        if spent[rung].sum() > 0 and (before - spent[rung]).idxmax() != _UNATTRIBUTED:
            yield _shrinkage(family, rung, before, spent[rung])


def _phase_times(family: FamilyView) -> pd.DataFrame:
    """Return the CPU seconds of each phase on `phase_problem`, a row per variant and phase.

    The seconds are the phase's share of one observed call, which is slower than timed calls, of a
    timed call. Variants with a different decision are left out, as in `tradeoff`.
    """
    cells = family.cells[family.cells["problem"] == family.phase_problem]
    cells = cells[cells["outcome"] != DIFFERENT].set_index("cell")
    # A ratio is from paired calls, so its product with the reference's time is free of the
    # machine's drift.
    reference = cells.loc[cells["outcome"] == "reference", "cpu_s"]
    paired = cells["ratio"] * (reference.iloc[0] if len(reference) else math.nan)
    timed = paired.fillna(cells["cpu_s"])
    phases = family.phases[family.phases["cell"].isin(cells.index)]
    observed = phases.groupby("cell")["seconds"].transform("sum")
    # An empty column has the text type of the cells' ids, which cannot be multiplied.
    whole = phases["cell"].map(timed).astype("float64").fillna(observed)
    return phases[["variant", "name"]].assign(seconds=phases["share"] * whole)


def _shares(phases: "pd.Series[float]", whole: float) -> str:
    return listing([f"`{name}` ({percent(s / whole)})" for name, s in phases.head(3).items()])


def _shrinkage(
    family: FamilyView, last: str, before: "pd.Series[float]", after: "pd.Series[float]"
) -> Finding:
    phase = str((before - after).idxmax())
    part = after[phase] / before[phase] if before[phase] else math.nan
    whole = after.sum() / before.sum()
    rest = after.drop(phase).sort_values(ascending=False)
    shares = _shares(rest, after.sum())
    detail = (
        f"On `{family.phase_problem}`, `{phase}` goes from {seconds(before[phase])} to "
        f"{seconds(after[phase])} and the whole from {seconds(before.sum())} to "
        f"{seconds(after.sum())}, by the shares of one observed call each"
    )
    if not part < 1:
        sentence = f"No phase of `{family.reference}` gets shorter in `{last}`."
        return Finding("phases", sentence, f"It spends most on {shares}.")
    gone = "disappears" if part == 0 else f"becomes {times(part)}"
    effect = f"From `{family.reference}` to `{last}`, `{phase}` {gone}"
    if part > whole * _UNCHANGED or after[phase] > rest.sum():
        sentence = f"{effect}, and the whole {times(whole)} with it."
        return Finding("phases", sentence, f"{detail}; the rest goes to {shares}.")
    if untouched := [n for n in rest.head(3).index if after[n] >= _UNCHANGED * before[n] > 0]:
        detail += f"; {names(untouched)} cost as much as before, or more"
    why = f"because most of the remaining time is elsewhere: {shares}"
    return Finding("phases", f"{effect} but the whole only {times(whole)}, {why}.", f"{detail}.")


def _quality(family: FamilyView) -> Iterator[Finding]:
    table = tradeoff(family)
    own = table[table["decision"] == "own"]
    if own.empty:
        return
    lower = str(own["better"].iloc[0]) != "higher"
    ranked = own.sort_values("quality", ascending=lower, kind="stable")
    best, worst = rows_of(ranked)[0], rows_of(ranked)[-1]
    name = family.against[family.quality_problem]
    reference = {row["variant"]: row for row in rows_of(table)}.get(name)
    figure = quantity(best["quality"], best["unit"])
    against = _against(best, reference, name, lower) if reference else ""
    which = f"`{best['variant']}` makes its own decision: its `{best['name']}` is"
    detail = f"On `{family.quality_problem}`: {figure}"
    if reference:
        detail += f" against {quantity(reference['quality'], best['unit'])} for `{name}`"
    if len(own) > 1:
        which = (
            f"Of the {len(own)} variants with their own decisions, `{best['variant']}` has the "
            f"best `{best['name']}`,"
        )
        least = quantity(worst["quality"], worst["unit"])
        detail += f"; the worst is `{worst['variant']}` with {least}, in {_cost(worst, name)}"
    sentence = f"{which} {against or figure}, in {_cost(best, name)}."
    yield Finding("quality", sentence, f"{detail}.")


def _gaps(family: FamilyView) -> Iterator[Finding]:
    cells = family.cells[family.cells["gap"].notna() & (family.cells["status"] == "ok")]
    if cells.empty or family.bound is None:
        return
    rows = rows_of(cells.sort_values("gap", kind="stable"))
    least, most = (
        f"`{row['variant']}` on `{row['problem']}`, {gap(row['gap'])}"
        for row in (rows[0], rows[-1])
    )
    yield Finding(
        "quality",
        f"The smallest gap to the proven bound on `{family.bound.quality}` is that of {least}; the "
        f"largest is that of {most}.",
    )


def _against(row: dict[str, Any], reference: dict[str, Any], name: str, lower: bool) -> str:
    if row["quality"] == reference["quality"]:
        return f"equal to `{name}`'s"
    if not reference["quality"]:
        return ""
    more = row["quality"] / reference["quality"] - 1
    better = (more < 0) == lower
    return f"{percent(abs(more))} {'better' if better else 'worse'} than `{name}`'s"


def _cost(row: dict[str, Any], reference: str) -> str:
    spent = seconds(row["cpu_s"], trim=True)
    if math.isnan(row["ratio"]):
        return f"{spent} of CPU time"
    is_less = row["ratio"] < 1
    share = number(row["ratio"] * (100 if is_less else 1), trim=True)
    share += " % of" if is_less else " times"
    return f"{share} `{reference}`'s CPU time ({spent})"


def _growth(family: FamilyView) -> Iterator[Finding]:
    for (sweep, size), fits in family.exponents.groupby(["sweep", "size_name"], sort=False):
        fitted = fits[fits["exponent"].notna()].sort_values("exponent", kind="stable")
        if fitted.empty:
            continue
        low, *others = rows_of(fitted)
        up_to = f", up to {_power(others[-1])}" if others else ""
        between = "".join(
            f"`{row['variant']}` has {_exponent(row)}; "
            for row in others[:-1]
            if row["variant"] == family.reference
        )
        yield Finding(
            "growth",
            f"CPU time grows with `{size}` to the power {_power(low)}{up_to}.",
            f"On `{sweep}`: {between}{_range(fitted['sizes'])} sizes from "
            f"{_range(fitted['smallest'], fitted['largest'])}; in brackets the 95 % interval.",
        )


def _range(low: "pd.Series[float]", high: "pd.Series[float] | None" = None) -> str:
    """Write the range from the least of `low` to the greatest of `high`, or of `low` alone."""
    least, greatest = low.min(), (low if high is None else high).max()
    return count(least) if least == greatest else f"{count(least)} to {count(greatest)}"


def _exponent(fit: dict[str, Any]) -> str:
    return with_interval(fit["exponent"], fit["low"], fit["high"], hundredths)


def _power(fit: dict[str, Any]) -> str:
    return f"{_exponent(fit)} for `{fit['variant']}`"

"""What was measured, in sentences: the ladder, where the time goes, quality, growth with size."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.formatting import (
    count,
    gap,
    interval,
    listing,
    number,
    percent,
    plural,
    quantity,
    seconds,
    times,
)
from reports.views.family import FamilyView, ladder, phase_times, rows_of, tradeoff
from reports.views.scaling import LEAST_SIZES

_UNATTRIBUTED = "other"
_UNCHANGED = 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: a sentence that stands alone, and the figures behind it."""

    kind: str
    family: str
    sentence: str
    detail: str = ""


def effects(family: FamilyView) -> Iterator[Finding]:
    """Say what the variants of a family do to time and quality; the first is the verdict."""
    yield _verdict(family)
    for tell in (_phases, _quality, _gaps, _growth):
        yield from tell(family)


def _verdict(family: FamilyView) -> Finding:
    rungs = ladder(family)
    compared = rungs[rungs["low"].notna() & (rungs["outcome"] != "reference")]
    if compared.empty:
        return _without_ladder(family)
    claimed = compared[compared["published_share"].notna()]
    best = rows_of(compared.nsmallest(1, "ratio"))[0]
    rung = rows_of(claimed.tail(1))[0] if len(claimed) else best
    sentence = f"`{rung['variant']}` {effect(rung, family.reference)}{_sameness(family, rung)}"
    if len(claimed):
        sentence += f"; the published ladder says {times(rung['published_share'])}"
    detail = (
        f"On `{family.ladder_problem}` it takes {number(rung['ratio'])} of the reference's CPU "
        f"time (interval {interval(rung['low'], rung['high'])})"
    )
    steps = _published_steps(rungs[rungs["published_after"].notna()])
    detail += f"; published were {steps}." if steps else "."
    if best["variant"] != rung["variant"]:
        detail += (
            f" The fastest with that decision is `{best['variant']}` at {number(best['ratio'])} "
            f"(interval {interval(best['low'], best['high'])})."
        )
    return Finding("verdict", family.name, sentence + ".", detail)


def _published_steps(claimed: pd.DataFrame) -> str:
    return listing(
        [
            f"{quantity(row['published_before'], row['published_unit'])} → "
            f"{quantity(row['published_after'], row['published_unit'])} for `{row['variant']}`"
            for row in rows_of(claimed)
        ]
    )


def effect(row: dict[str, Any], reference: str) -> str:
    """Say by outcome and ratio what a variant does to the time of another."""
    if row["outcome"] == "same":
        return f"takes the same time as `{reference}`"
    if row["outcome"] in ("faster", "slower"):
        return f"is {times(row['ratio'])} than `{reference}`"
    return f"cannot be told from `{reference}` in time"


def _sameness(family: FamilyView, row: dict[str, Any]) -> str:
    cells = family.cells[family.cells["variant"] == row["variant"]]
    same = int((cells["decision"] == "same").sum())
    decided = same + int((cells["decision"] == "different").sum())
    if not decided:
        return ", with a decision of its own" if (cells["decision"] == "own").any() else ""
    if same == decided:
        return " and makes the same decision"
    return f" and makes the same decision on {same} of {plural(decided, 'problem')}"


def _without_ladder(family: FamilyView) -> Finding:
    compared = family.cells[family.cells["ratio"].notna()]
    if compared.empty:
        held = family.cells["outcome"].value_counts(sort=False)
        states = listing([f"{n} {outcome}" for outcome, n in held.items()], most=9)
        return Finding(
            "verdict",
            family.name,
            f"Nothing of `{family.name}` could be compared with `{family.reference}`.",
            f"The results hold {plural(len(family.cells), 'cell')}: {states}.",
        )
    best = rows_of(compared.nsmallest(1, "ratio"))[0]
    return Finding(
        "verdict",
        family.name,
        f"`{best['variant']}` {effect(best, best['against'])}{_sameness(family, best)}.",
        f"On `{best['problem']}` it takes {number(best['ratio'])} of its CPU time "
        f"(interval {interval(best['ratio_low'], best['ratio_high'])}).",
    )


def _phases(family: FamilyView) -> Iterator[Finding]:
    """Compare where the time goes before and after the ladder, and say why the whole lags."""
    spent = phase_times(family).pivot(index="name", columns="variant", values="seconds")
    spent = spent.reindex(index=phase_times(family)["name"].unique()).fillna(0.0)
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
            family.name,
            f"Most of `{reference}`'s time goes to {shares}.",
            f"On `{family.phase_problem}`, by the shares of one observed call.",
        )
        return
    fastest = str(reached.nsmallest(1, "ratio")["variant"].iloc[0])
    last_claimed = str(claimed["variant"].iloc[-1]) if len(claimed) else fastest
    for rung in dict.fromkeys((last_claimed, fastest)):
        # Time that is not attributed says nothing of where it went, and no time has no shares.
        if spent[rung].sum() > 0 and (before - spent[rung]).idxmax() != _UNATTRIBUTED:
            yield _shrinkage(family, rung, before, spent[rung])


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
        return Finding("phases", family.name, sentence, f"It spends most on {shares}.")
    gone = "disappears" if part == 0 else f"becomes {times(part)}"
    effect = f"From `{family.reference}` to `{last}`, `{phase}` {gone}"
    if part > whole * _UNCHANGED or after[phase] > rest.sum():
        sentence = f"{effect}, and the whole {times(whole)} with it."
        return Finding("phases", family.name, sentence, f"{detail}; beside it remain {shares}.")
    sentence = (
        f"{effect} but the whole only {times(whole)}, because most of what is left is elsewhere: "
        f"{shares}."
    )
    untouched = [f"`{n}`" for n in rest.head(3).index if after[n] >= _UNCHANGED * before[n] > 0]
    if untouched:
        detail += f"; {listing(untouched)} cost as much as before, or more"
    return Finding("phases", family.name, sentence, detail + ".")


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
    sentence = f"`{best['variant']}` decides on its own: its `{best['name']}` is"
    if len(own) > 1:
        sentence = (
            f"Of the {len(own)} variants that decide on their own, `{best['variant']}` has the "
            f"best `{best['name']}`,"
        )
    against = _against(best, reference, name, lower) if reference else ""
    sentence += f" {against or quantity(best['quality'], best['unit'])},"
    sentence += f" in {_cost(best, name)}."
    detail = f"On `{family.quality_problem}`: {quantity(best['quality'], best['unit'])}"
    if reference:
        detail += f" beside {quantity(reference['quality'], best['unit'])} for `{name}`"
    if len(own) > 1:
        detail += (
            f"; the worst is `{worst['variant']}` with "
            f"{quantity(worst['quality'], worst['unit'])}, in {_cost(worst, name)}"
        )
    yield Finding("quality", family.name, sentence, detail + ".")


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
        family.name,
        f"The smallest gap to the proven bound on `{family.bound.quality}` is that of {least}; the "
        f"largest is that of {most}.",
    )


def _against(row: dict[str, Any], reference: dict[str, Any], name: str, lower: bool) -> str:
    if row["quality"] == reference["quality"]:
        return f"equal to `{name}`'s"
    if not reference["quality"]:
        return ""
    change = row["quality"] / reference["quality"] - 1
    better = (change < 0) == lower
    return f"{percent(abs(change))} {'better' if better else 'worse'} than `{name}`'s"


def _cost(row: dict[str, Any], reference: str) -> str:
    spent = seconds(row["cpu_s"], trim=True)
    if math.isnan(row["ratio"]):
        return f"{spent} of CPU time"
    if row["ratio"] < 1:
        share = f"{number(row['ratio'] * 100, trim=True)} % of"
    else:
        share = f"{number(row['ratio'], trim=True)} times"
    return f"{share} `{reference}`'s CPU time ({spent})"


def _growth(family: FamilyView) -> Iterator[Finding]:
    for (sweep, size), fits in family.exponents.groupby(["sweep", "size_name"], sort=False):
        fitted = fits[fits["exponent"].notna()].sort_values("exponent", kind="stable")
        if fitted.empty:
            yield Finding(
                "growth",
                family.name,
                f"No exponent can be given for `{sweep}`.",
                f"It takes at least {LEAST_SIZES} sizes that were measured and differ only in "
                f"`{size}`; there are {fits['sizes'].max()}.",
            )
            continue
        rows = rows_of(fitted)
        low, high = rows[0], rows[-1]
        sentence = f"CPU time grows with `{size}` to the power {_power(low)}"
        if len(rows) > 1:
            sentence += f", up to {_power(high)}"
        between = "".join(
            f"`{family.reference}` has {_power(row, named=False)}; "
            for row in rows[1:-1]
            if row["variant"] == family.reference
        )
        yield Finding(
            "growth",
            family.name,
            sentence + ".",
            f"On `{sweep}`: {between}{_range(fitted['sizes'])} sizes from "
            f"{_range(fitted['smallest'], fitted['largest'])}; in brackets the 95 % interval.",
        )


def _range(low: "pd.Series[float]", high: "pd.Series[float] | None" = None) -> str:
    """The values of one or two columns from least to greatest."""
    least, greatest = low.min(), (low if high is None else high).max()
    return count(least) if least == greatest else f"{count(least)} to {count(greatest)}"


def _power(fit: dict[str, Any], named: bool = True) -> str:
    text = f"{fit['exponent']:.2f} ({fit['low']:.2f} to {fit['high']:.2f})"
    return text + (f" for `{fit['variant']}`" if named else "")

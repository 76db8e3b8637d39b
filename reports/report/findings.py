"""The findings on a family, the most important kinds first, and on a whole results file."""

from collections.abc import Iterable, Iterator

from reports.core.formatting import (
    MISSING,
    gap,
    interval,
    listing,
    number,
    plural,
    quantity,
    seconds,
)
from reports.core.frames import Results
from reports.core.page import Finding
from reports.family.data import FamilyView, Row, environments, rows_of
from reports.family.overview import overview
from reports.family.shortfalls import goals, repetition, shortfalls

KINDS = (
    *("gain", "better decision", "record", "goals", "different decisions", "failed"),
    *("repeated work", "over budget", "inconclusive"),
    *("not installed", "file"),
)


def family_findings(family: FamilyView, others: Iterable[Finding] = ()) -> list[Finding]:
    """Return a family's findings and `others` on it: the first of each kind, then the rest."""
    tellers = (gains, goals, repetition, shortfalls)
    found = [*(finding for tell in tellers for finding in tell(family)), *others]
    found.sort(key=lambda finding: KINDS.index(finding.kind))
    firsts = {finding.kind: finding for finding in reversed(found)}
    return sorted(found, key=lambda finding: finding is not firsts[finding.kind])


def file_findings(results: Results) -> Iterator[Finding]:
    """Yield the findings on a results file as a whole."""
    held = environments(results)
    if len(held) > 1:
        yield Finding(
            "file",
            f"The cells were measured in {len(held)} different environments.",
            "Each ratio is from one run and is valid; times of different runs cannot be compared.",
        )
    yield from (Finding("file", note) for note in results.notes)


def gains(family: FamilyView) -> Iterator[Finding]:
    """Yield findings that compare ours with today's release: the same decision, a better one.

    Without any, yield the best comparison that there is, or the outcomes of the cells.
    """
    rows = rows_of(overview([family]))
    for row in rows:
        if row["times_as_fast"] > 0:
            yield Finding("gain", _speedup(row), _times(family, row))
        if is_better(row):
            yield Finding("better decision", *_improvement(family, row))
    if not any(row["times_as_fast"] > 0 or is_better(row) for row in rows):
        yield _without_gain(family)


def is_better(row: Row) -> bool:
    """Return whether our best decision has a smaller proven gap than that of today's release."""
    return bool(row["gap_ours"] < row["gap_today"])


def _today(row: Row) -> str:
    return f"`{row['today']}`" + (f" ({row['today_is']})" if row["today_is"] else "")


def _speedup(row: Row) -> str:
    today = _today(row)
    amount = f"{number(row['times_as_fast'], trim=True)} times as fast as {today}"
    if row["low"] <= 1 <= row["high"]:
        return f"`{row['ours']}` cannot be distinguished from {today} in time."
    if row["basis"] != "measured":
        return f"`{row['ours']}` is at least {amount}, which was stopped."
    same = {"same": ", with the same decision", "own": ", with a decision of its own"}
    if row["times_as_fast"] < 1:
        slower = f"{number(1 / row['times_as_fast'], trim=True)} times as long as {today}"
        return f"`{row['ours']}` takes {slower}{same.get(row['decision'], '')}."
    return f"`{row['ours']}` is {amount}{same.get(row['decision'], '')}."


def _times(family: FamilyView, row: Row) -> str:
    cells = family.on(row["problem"])
    ours, today = (cells[row[whose]] for whose in ("ours", "today"))
    if row["basis"] != "measured":
        basis = "a projection from its progress" if row["basis"] == "projected" else "its budget"
        return f"On `{row['problem']}`, by {basis}; this is no measurement."
    ends = interval(row["low"], row["high"])
    spent = _known(
        f"{seconds(ours['cpu_s'], trim=True)} of CPU time instead of "
        f"{seconds(today['cpu_s'], trim=True)}; "
    )
    return f"On `{row['problem']}`: {spent}the interval of the ratio is {ends}."


def _known(text: str) -> str:
    """Return a part of a sentence, or "" if a value in it is missing."""
    return "" if MISSING in text else text


def _improvement(family: FamilyView, row: Row) -> tuple[str, str]:
    ours, today = (quantity(row[f"quality_{whose}"], row["unit"]) for whose in ("ours", "today"))
    rated = _today(row) if row["rated"] == row["today"] else f"`{row['rated']}`"
    sentence = (
        f"`{row['best']}` finds a better decision: `{row['quality']}` is {ours} instead of {today} "
        f"with {rated}."
    )
    cells = family.on(row["rated_on"])
    spent, spent_today = (cells[row[each]]["cpu_s"] for each in ("best", "rated"))
    detail = (
        f"On `{row['rated_on']}`, {gap(row['gap_ours'])} from the proven bound, which no decision "
        f"can pass; `{row['rated']}` is {gap(row['gap_today'])} from it."
    ) + _known(
        f" CPU time: {seconds(spent, trim=True)}, and {seconds(spent_today, trim=True)} for "
        f"`{row['rated']}`."
    )
    return sentence, detail


def _without_gain(family: FamilyView) -> Finding:
    cells = family.cells.rename(columns={"ratio_low": "low", "ratio_high": "high"})
    compared = cells[cells["ratio"].notna()]
    if compared.empty:
        outcomes = cells["outcome"].value_counts(sort=False).items()
        states = listing([f"{n} {outcome}" for outcome, n in outcomes], most=9)
        return Finding(
            "gain",
            f"Nothing of `{family.name}` could be compared with `{family.reference}`.",
            f"The results contain {plural(len(cells), 'cell')}: {states}.",
        )
    best = rows_of(compared.nsmallest(1, "ratio"))[0]
    return Finding(
        "gain",
        f"`{best['variant']}` takes {number(best['ratio'])} of the CPU time of "
        f"`{best['against']}` (interval {interval(best['low'], best['high'])}).",
        f"On `{best['problem']}`.",
    )

"""Sentences on what changed between two results files, what must not change first."""

import math
from collections.abc import Iterator

from reports.findings.finding import Finding
from reports.formatting import (
    MISSING,
    change,
    count,
    listing,
    names,
    percent,
    plural,
    with_interval,
)
from reports.views.changes import Comparison
from reports.views.family import rows_of

_MOST = 3
_COMPARED = ("faster", "slower", "same", "inconclusive", "reference", "not compared")


def sentences(changes: Comparison) -> list[Finding]:
    """Return what changed; the first finding sums it up."""
    tellers = (_decisions, _counters, _qualities, _times, _files)
    return [_summary(changes), *(finding for tell in tellers for finding in tell(changes))]


def _summary(changes: Comparison) -> Finding:
    both = changes.both
    if both.empty:
        return Finding("verdict", "The two files have no cell in common.")
    different = int((both["decision"] == "different").sum())
    grown = int((changes.counters["factor"] > 1).sum())
    fallen = len(changes.counters) - grown
    worse = int((changes.qualities["effect"] == "worse").sum())
    better = len(changes.qualities) - worse
    lost = int(((both["status_a"] == "ok") & (both["status_b"] != "ok")).sum())
    found = [
        text
        for amount, text in (
            (lost, f"{plural(lost, 'cell')} no longer {'ends' if lost == 1 else 'end'} well"),
            (different, f"{plural(different, 'decision')} changed"),
            (grown, f"{plural(grown, 'counter')} grew"),
            (fallen, f"{plural(fallen, 'counter')} fell"),
            (worse, f"{plural(worse, 'quality')} got worse"),
            (better, f"{plural(better, 'quality')} got better"),
        )
        if amount
    ]
    compared = both["moved"] != ""
    moved = int(both["moved"].isin(["less", "more"]).sum())
    sentence = f"Of {plural(len(both), 'cell')} that both files hold, "
    if found:
        sentence = f"{sentence}{listing(found, most=6)}."
    else:
        sentence += "none decides, counts or rates anything otherwise."
    told = int((both["decision"] != "").sum())
    detail = (
        f"{count(told - different)} of {plural(told, 'decision')} that both fingerprint are the "
        f"same; {count(moved)} of {plural(int(compared.sum()), 'ratio')} moved beyond both "
        "intervals."
    )
    return Finding("verdict", sentence, detail)


def _decisions(changes: Comparison) -> Iterator[Finding]:
    both = changes.both
    cells = both["cell"][both["decision"] == "different"]
    if len(cells):
        yield Finding(
            "decisions",
            f"{plural(len(cells), 'cell')} {'decides' if len(cells) == 1 else 'decide'} otherwise "
            f"than before: {names(cells, _MOST)}.",
            "Their fingerprints differ; the qualities below say whether for the better.",
        )
    odd = ~both["outcome_a"].isin(_COMPARED) | ~both["outcome_b"].isin(_COMPARED)
    odd &= both["outcome_a"] != both["outcome_b"]
    for (a, b), group in both[odd].groupby(["outcome_a", "outcome_b"], sort=False):
        kind = "failed" if b in ("failed", "different decision") else "outcome"
        went = f"{plural(len(group), 'cell')} went from {a} to {b}"
        yield Finding(kind, f"{went}: {names(group['cell'], _MOST)}.")


def _counters(changes: Comparison) -> Iterator[Finding]:
    table = changes.counters
    grown, fallen = table[table["factor"] > 1], table[table["factor"] < 1]
    for found, verb in ((grown, "grew"), (fallen.iloc[::-1], "fell")):
        if len(found):
            told = [
                f"`{row['name']}` of `{row['cell']}` {count(row['a'])} → {count(row['b'])}"
                for row in rows_of(found)
            ]
            yield Finding(
                "counters",
                f"{plural(len(found), 'counter')} {verb}: {listing(told, _MOST)}.",
                "A counter repeats exactly, so the code does other work than before.",
            )


def _qualities(changes: Comparison) -> Iterator[Finding]:
    table = changes.qualities
    worse, better = table[table["effect"] == "worse"], table[table["effect"] == "better"]
    for found, effect in ((worse, "worse"), (better.iloc[::-1], "better")):
        if len(found):
            told = [
                f"`{row['name']}` of `{row['cell']}` {change(row['a'], row['b'], row['unit'])}"
                f"{_share(row['change'])}"
                for row in rows_of(found)
            ]
            got = f"{plural(len(found), 'quality')} got {effect}"
            yield Finding(effect, f"{got}: {listing(told, _MOST)}.")


def _share(more: float) -> str:
    if not math.isfinite(more):
        return ""
    return f" ({percent(abs(more))} {'more' if more > 0 else 'less'})"


def _times(changes: Comparison) -> Iterator[Finding]:
    both = changes.both
    for moved in ("more", "less"):
        found = both[both["moved"] == moved]
        if found.empty:
            continue
        step = (found["ratio_b"] / found["ratio_a"]).sort_values(ascending=moved == "less")
        told = [
            f"`{row['cell']}` {with_interval(row['ratio_a'], row['low_a'], row['high_a'])} → "
            f"{with_interval(row['ratio_b'], row['low_b'], row['high_b'])}"
            for row in rows_of(found.loc[step.index])
        ]
        verb = "takes" if len(found) == 1 else "take"
        yield Finding(
            "time",
            f"{plural(len(found), 'cell')} {verb} {moved} of the time of what they are compared "
            f"with than before: {listing(told, _MOST)}.",
            "Each ratio was taken within its own run, and the two intervals have nothing in "
            "common. It moves as well where the other variant's time does.",
        )
    if within := int((both["moved"] == "within").sum()):
        yield Finding(
            "time",
            f"{plural(within, 'ratio')} stayed within the intervals.",
            "That says nothing against a change that is smaller than them.",
        )


def _files(changes: Comparison) -> Iterator[Finding]:
    """Say what only one file holds, with what each was measured, and what is wrong with it."""
    for file in "AB":
        cells = changes.cells["cell"][changes.cells["where"] == f"only {file}"]
        if len(cells):
            alone = f"{plural(len(cells), 'cell')} of {file} alone"
            yield Finding("cells", f"{alone}: {names(cells, _MOST)}.")
    differ = changes.settings[changes.settings["a"] != changes.settings["b"]]
    if len(differ):
        told = [f"{r['what']} {r['a'] or MISSING} → {r['b'] or MISSING}" for r in rows_of(differ)]
        yield Finding("measured with", f"Measured with something else: {listing(told, most=8)}.")
    if not changes.both.empty and not changes.both["one_machine"].any():
        yield Finding(
            "measured with",
            "No cell was measured by one and the same machine in both files.",
            "Times in seconds are left out; decisions, counters, qualities and ratios stand.",
        )
    for file, results in (("A", changes.a), ("B", changes.b)):
        yield from (Finding("file", f"{file}: {note}") for note in results.notes)

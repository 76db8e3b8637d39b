"""What changed between two results files, in sentences with numbers, what must not change first."""

import math
from collections.abc import Iterator

import pandas as pd

from reports.comparing.changes import Comparison
from reports.findings.measured import Finding
from reports.formatting import MISSING, count, interval, listing, number, percent, plural, quantity
from reports.views.family import rows_of

_MOST = 3


def sentences(changes: Comparison) -> list[Finding]:
    """Return what changed; the first finding sums it up."""
    tellers = (_decisions, _outcomes, _counters, _qualities, _times, _apart, _settings, _notes)
    return [_summary(changes), *(finding for tell in tellers for finding in tell(changes))]


def _summary(changes: Comparison) -> Finding:
    both = changes.both
    if both.empty:
        return Finding("verdict", "", "The two files have no cell in common.")
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
            (worse, f"{_figures(worse)} got worse"),
            (better, f"{_figures(better)} got better"),
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
    return Finding("verdict", "", sentence, detail)


def _figures(amount: int) -> str:
    return f"{amount:,} {'quality' if amount == 1 else 'qualities'}"


def _decisions(changes: Comparison) -> Iterator[Finding]:
    cells = changes.both["cell"][changes.both["decision"] == "different"]
    if len(cells):
        yield Finding(
            "decisions",
            "",
            f"{plural(len(cells), 'cell')} {'decides' if len(cells) == 1 else 'decide'} otherwise "
            f"than before: {_cells(cells)}.",
            "Their fingerprints differ; the qualities below say whether for the better.",
        )


def _outcomes(changes: Comparison) -> Iterator[Finding]:
    plain = ("faster", "slower", "same", "inconclusive", "reference", "not compared")
    both = changes.both
    odd = ~both["outcome_a"].isin(plain) | ~both["outcome_b"].isin(plain)
    for (a, b), cells in both[odd & (both["outcome_a"] != both["outcome_b"])].groupby(
        ["outcome_a", "outcome_b"], sort=False
    ):
        kind = "failed" if b in ("failed", "different decision") else "outcome"
        yield Finding(
            kind, "", f"{plural(len(cells), 'cell')} went from {a} to {b}: {_cells(cells['cell'])}."
        )


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
                "",
                f"{plural(len(found), 'counter')} {verb}: {listing(told, most=_MOST)}.",
                "A counter repeats exactly, so the code does other work than before.",
            )


def _qualities(changes: Comparison) -> Iterator[Finding]:
    table = changes.qualities
    for effect in ("worse", "better"):
        found = table[table["effect"] == effect]
        found = found if effect == "worse" else found.iloc[::-1]
        if len(found):
            told = [
                f"`{row['name']}` of `{row['cell']}` {quantity(row['a'], row['unit'])} → "
                f"{quantity(row['b'], row['unit'])}{_share(row['change'])}"
                for row in rows_of(found)
            ]
            yield Finding(
                effect,
                "",
                f"{_figures(len(found))} got {effect}: {listing(told, most=_MOST)}.",
            )


def _share(change: float) -> str:
    if not math.isfinite(change):
        return ""
    return f" ({percent(abs(change))} {'more' if change > 0 else 'less'})"


def _times(changes: Comparison) -> Iterator[Finding]:
    both = changes.both
    for moved in ("more", "less"):
        found = both[both["moved"] == moved]
        if found.empty:
            continue
        step = (found["ratio_b"] / found["ratio_a"]).sort_values(ascending=moved == "less")
        told = [
            f"`{row['cell']}` {number(row['ratio_a'])} ({interval(row['low_a'], row['high_a'])}) → "
            f"{number(row['ratio_b'])} ({interval(row['low_b'], row['high_b'])})"
            for row in rows_of(found.loc[step.index])
        ]
        verb = "takes" if len(found) == 1 else "take"
        yield Finding(
            "time",
            "",
            f"{plural(len(found), 'cell')} {verb} {moved} of the time of what they are compared "
            f"with than before: {listing(told, most=_MOST)}.",
            "Each ratio was taken within its own run, and the two intervals have nothing in "
            "common. It moves as well where the other variant's time does.",
        )
    within = int((both["moved"] == "within").sum())
    if within:
        yield Finding(
            "time",
            "",
            f"{plural(within, 'ratio')} stayed within the intervals.",
            "That says nothing against a change that is smaller than them.",
        )


def _apart(changes: Comparison) -> Iterator[Finding]:
    for where, file in (("only A", "A"), ("only B", "B")):
        cells = changes.cells["cell"][changes.cells["where"] == where]
        if len(cells):
            yield Finding(
                "cells", "", f"{plural(len(cells), 'cell')} of {file} alone: {_cells(cells)}."
            )


def _settings(changes: Comparison) -> Iterator[Finding]:
    table = changes.settings
    differ = table[table["a"] != table["b"]]
    if len(differ):
        told = [
            f"{row['what']} {row['a'] or MISSING} → {row['b'] or MISSING}"
            for row in rows_of(differ)
        ]
        yield Finding(
            "measured with", "", f"Measured with something else: {listing(told, most=8)}."
        )
    if not changes.both.empty and not changes.both["one_machine"].any():
        yield Finding(
            "measured with",
            "",
            "No cell was measured by one and the same machine in both files.",
            "Times in seconds are left out; decisions, counters, qualities and ratios stand.",
        )


def _notes(changes: Comparison) -> Iterator[Finding]:
    for file, results in (("A", changes.a), ("B", changes.b)):
        for note in results.notes:
            yield Finding("file", "", f"{file}: {note}")


def _cells(cells: "pd.Series[str]") -> str:
    return listing([f"`{cell}`" for cell in cells], most=_MOST)

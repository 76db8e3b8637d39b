"""Findings on the changes between two results files, unwanted changes first."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from reports.changes.data import Changes
from reports.core.formatting import (
    MISSING,
    change,
    count,
    factor,
    listing,
    names,
    percent,
    plural,
    with_interval,
)
from reports.core.page import Finding
from reports.family.data import rows_of

_MOST = 3
_COMPARED = ("faster", "slower", "same", "inconclusive", "reference", "not compared")


def sentences(changes: Changes) -> list[Finding]:
    """Return findings on all changes; the first finding is the summary."""
    tellers = (_decisions, _counters, _qualities, _times, _files)
    return [_summary(changes), *(finding for tell in tellers for finding in tell(changes))]


def _summary(changes: Changes) -> Finding:
    both = changes.both
    if both.empty:
        return Finding("verdict", "The two files have no cell in common.")
    different = int((both["decision"] == "different").sum())
    grown = int((changes.counters["factor"] > 1).sum())
    worse = int((changes.qualities["effect"] == "worse").sum())
    lost = int(((both["status_a"] == "ok") & (both["status_b"] != "ok")).sum())
    amounts = (
        (lost, "cell", f"no longer {'succeeds' if lost == 1 else 'succeed'}"),
        (different, "decision", "changed"),
        (grown, "counter", "grew"),
        (len(changes.counters) - grown, "counter", "fell"),
        (worse, "quality", "got worse"),
        (len(changes.qualities) - worse, "quality", "got better"),
    )
    moves = [f"{plural(amount, noun)} {verb}" for amount, noun, verb in amounts if amount]
    decided = int((both["decision"] != "").sum())
    return Finding(
        "verdict",
        f"{_largest(changes)}, {_between(changes)}.",
        f"Of {plural(len(both), 'cell')} in both files, "
        f"{listing(moves, most=6) or 'none has another decision, counter or quality'}. "
        f"{count(decided - different)} of {plural(decided, 'decision')} with fingerprints in both "
        f"files are the same; {count(int(both['moved'].isin(['less', 'more']).sum()))} of "
        f"{plural(int((both['moved'] != '').sum()), 'ratio')} moved beyond both intervals.",
    )


def _largest(changes: Changes) -> str:
    """Return a clause on the largest change: a lost cell, another decision, or a factor."""
    both = changes.both
    lost = both["cell"][(both["status_a"] == "ok") & (both["status_b"] != "ok")]
    different = both["cell"][both["decision"] == "different"]
    for cells, what in ((lost, "no longer succeeds"), (different, "has another decision")):
        if len(cells):
            return f"`{cells.iloc[0]}` {what}"
    sizes = {
        f"CPU time of `{row['cell']}` relative to `{row['against_b']}`": (
            row["ratio_b"] / row["ratio_a"]
        )
        for row in rows_of(both[both["moved"].isin(["less", "more"])])
    }
    sizes |= {f"`{row['name']}` of `{row['cell']}`": row["factor"] for row in _figures(changes)}
    if not sizes:
        return "No decision, counter, quality or ratio changed"
    what, size = max(sizes.items(), key=lambda named: _magnitude(named[1]))
    if math.isinf(_magnitude(size)):
        return f"Largest change: {what} {'is no longer none' if size else 'is none now'}"
    sign = "+" if size > 1 else "-"
    return f"Largest change: {what} {sign}{percent(abs(size - 1))} ({factor(size)})"


def _magnitude(size: float) -> float:
    return abs(math.log(size)) if 0 < size < math.inf else math.inf


def _figures(changes: Changes) -> Iterator[dict[str, Any]]:
    yield from rows_of(changes.counters)
    yield from rows_of(changes.qualities.assign(factor=changes.qualities["change"] + 1))


def _between(changes: Changes) -> str:
    """Return a clause with the commits of both files, or else with the digests of their code."""
    made_by = changes.settings.set_index("what")
    for name in ("commit", "code"):
        if name in made_by.index:
            a, b = (str(made_by.loc[name, file]) for file in "ab")
            if a and b:
                return f"with the same {name} `{a}`" if a == b else f"from {name} `{a}` to `{b}`"
    return "from A to B"


def _decisions(changes: Changes) -> Iterator[Finding]:
    both = changes.both
    cells = both["cell"][both["decision"] == "different"]
    if len(cells):
        yield Finding(
            "decisions",
            f"{plural(len(cells), 'cell')} with another decision than before: "
            f"{names(cells, _MOST)}.",
            "Their fingerprints differ. The qualities below show whether the decision is better.",
        )
    odd = ~both["outcome_a"].isin(_COMPARED) | ~both["outcome_b"].isin(_COMPARED)
    odd &= both["outcome_a"] != both["outcome_b"]
    for (a, b), group in both[odd].groupby(["outcome_a", "outcome_b"], sort=False):
        kind = "failed" if b in ("failed", "different decision") else "outcome"
        went = f"{plural(len(group), 'cell')} went from {a} to {b}"
        yield Finding(kind, f"{went}: {names(group['cell'], _MOST)}.")


def _counters(changes: Changes) -> Iterator[Finding]:
    def write(row: dict[str, Any]) -> str:
        return f"`{row['name']}` of `{row['cell']}` {count(row['a'])} → {count(row['b'])}"

    table = changes.counters
    detail = "A counter repeats exactly, so the code does more or less work than before."
    yield from _listed("counters", table[table["factor"] > 1], "counter", "grew", write, detail)
    fell = table[table["factor"] < 1].iloc[::-1]
    yield from _listed("counters", fell, "counter", "fell", write, detail)


def _qualities(changes: Changes) -> Iterator[Finding]:
    def write(row: dict[str, Any]) -> str:
        more = row["change"]
        share = f" ({percent(abs(more))} {'more' if more > 0 else 'less'})"
        values = change(row["a"], row["b"], row["unit"])
        return f"`{row['name']}` of `{row['cell']}` {values}{share if math.isfinite(more) else ''}"

    table = changes.qualities
    for effect, found in (("worse", table), ("better", table.iloc[::-1])):
        found = found[found["effect"] == effect]
        yield from _listed(effect, found, "quality", f"got {effect}", write)


def _times(changes: Changes) -> Iterator[Finding]:
    def write(row: dict[str, Any]) -> str:
        a, b = (
            with_interval(row[f"ratio_{file}"], row[f"low_{file}"], row[f"high_{file}"])
            for file in "ab"
        )
        return f"`{row['cell']}` {a} → {b}"

    both = changes.both.assign(step=changes.both["ratio_b"] / changes.both["ratio_a"])
    for moved in ("more", "less"):
        found = both[both["moved"] == moved].sort_values("step", ascending=moved == "less")
        yield from _listed(
            "time",
            found,
            "cell",
            f"with {moved} time than before, relative to the variant compared with",
            write,
            "Each ratio was measured in one run, and the two intervals do not overlap. A ratio "
            "also changes if the time of the variant compared with does.",
        )
    if within := int((both["moved"] == "within").sum()):
        yield Finding(
            "time",
            f"{plural(within, 'ratio')} changed by no more than the intervals.",
            "Smaller changes cannot be detected.",
        )


def _listed(
    kind: str,
    found: pd.DataFrame,
    noun: str,
    verb: str,
    write: Callable[[dict[str, Any]], str],
    detail: str = "",
) -> Iterator[Finding]:
    """Yield a finding with the number of rows and a list of the first ones, if there are rows."""
    if len(found):
        first = listing([write(row) for row in rows_of(found)], _MOST)
        yield Finding(kind, f"{plural(len(found), noun)} {verb}: {first}.", detail)


def _files(changes: Changes) -> Iterator[Finding]:
    """Yield findings on cells of one file only, on differing environments, and on file notes."""
    for file in "AB":
        cells = changes.cells["cell"][changes.cells["where"] == f"only {file}"]
        if len(cells):
            alone = f"{plural(len(cells), 'cell')} only in {file}"
            yield Finding("cells", f"{alone}: {names(cells, _MOST)}.")
    differ = changes.settings[changes.settings["a"] != changes.settings["b"]]
    if len(differ):
        changed = [
            f"{r['what']} {r['a'] or MISSING} → {r['b'] or MISSING}" for r in rows_of(differ)
        ]
        yield Finding(
            "measured with", f"Versions, machines or settings differ: {listing(changed, most=8)}."
        )
    if not changes.both.empty and not changes.both["one_machine"].any():
        yield Finding(
            "measured with",
            "No cell was measured on the same machine in both files.",
            "Times in seconds are left out. All other figures are compared.",
        )
    for file, results in (("A", changes.a), ("B", changes.b)):
        yield from (Finding("file", f"{file}: {note}") for note in results.notes)

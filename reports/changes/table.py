"""The tables of the changes between two results files."""

import math
from collections.abc import Mapping
from typing import Any

from reports.changes.data import Changes
from reports.core.formatting import MISSING, count, number, percent, seconds
from reports.core.table import (
    Entry,
    Table,
    Tone,
    code,
    interval_column,
    numbers,
    outcome_column,
    table_of,
    text,
)
from reports.family.data import Row, rows_of

_MOVED: dict[str, Entry] = {
    "less": Entry("less time", tone="good"),
    "more": Entry("more time", tone="bad"),
    "within": Entry("within both"),
    "": Entry(MISSING),
}
_TONES: dict[str, Tone] = {"worse": "bad", "better": "good", "different": "bad"}


def cells_table(changes: Changes) -> Table:
    """Return a row per cell of either file: decision, outcomes, times, and numbers of changes."""
    counted = changes.counters["cell"].value_counts().to_dict()
    rated = changes.qualities["cell"].value_counts().to_dict()
    timed = bool(changes.cells["one_machine"].any())

    def amount(found: Mapping[Any, int], row: Row) -> Entry | None:
        many = found.get(row["cell"], 0)
        return Entry(count(many), many) if row["where"] == "both" else None

    shares = (
        column
        for a, b in (("a", "A"), ("b", "B"))
        for column in (
            numbers(f"share in {b}", f"ratio_{a}"),
            interval_column(f"interval in {b}", f"low_{a}", f"high_{a}"),
        )
    )
    times = (
        numbers(f"CPU time in {b} (information)", f"cpu_s_{a}", seconds)
        for a, b in (("a", "A"), ("b", "B"))
        if timed
    )
    return table_of(
        rows_of(changes.cells),
        code("cell"),
        text("file", "where"),
        text("decision", lambda row: _toned(row["decision"])),
        outcome_column("outcome in A", "outcome_a"),
        outcome_column("outcome in B", "outcome_b"),
        *shares,
        text("time moved", lambda row: _MOVED[row["moved"]]),
        numbers("counters changed", lambda row: amount(counted, row)),
        numbers("qualities changed", lambda row: amount(rated, row)),
        *times,
    )


def _toned(what: str) -> Entry:
    return Entry(what or MISSING, tone=_TONES.get(what, ""))


def counters_table(changes: Changes) -> Table:
    """Return a row per counter that differs between the files."""
    return table_of(
        rows_of(changes.counters),
        code("cell"),
        code("counter", "name"),
        numbers("in A", "a", count),
        numbers("in B", "b", count),
        numbers("more", lambda row: row["b"] - row["a"], _plus),
        numbers("times as many", "factor", _times),
    )


def _plus(more: float) -> str:
    return f"+{count(more)}" if more > 0 else count(more)


def _times(factor: float) -> str:
    return "from none" if math.isinf(factor) else number(float(factor))


def qualities_table(changes: Changes) -> Table:
    """Return a row per quality that differs between the files."""
    return table_of(
        rows_of(changes.qualities),
        code("cell"),
        code("quality", lambda r: f"{r['name']} [{r['unit']}]" if r["unit"] else r["name"]),
        numbers("in A", "a"),
        numbers("in B", "b"),
        numbers("change", write=_change),
        text("which is", lambda row: _toned(row["effect"])),
    )


def _change(share: float) -> str:
    if not math.isfinite(share):
        return MISSING
    sign = "+" if share > 0 else "-"
    return f"{sign}{percent(abs(share)).removeprefix('< ')}" if share else "0 %"


def settings_table(changes: Changes) -> Table:
    """Return a row per version, machine or setting, with its value in A and in B."""
    return table_of(
        rows_of(changes.settings),
        text("what"),
        text("A", lambda row: row["a"] or None),
        text("B", lambda row: row["b"] or None),
        text("the two", lambda r: "same" if r["a"] == r["b"] else Entry("differs", tone="bad")),
    )

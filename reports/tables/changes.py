"""The tables of a comparison of two results files."""

import math
from typing import Any

from reports.comparing.changes import Comparison
from reports.formatting import MISSING, count, interval, number, percent, seconds
from reports.tables.family import (
    Column,
    Entry,
    Row,
    Table,
    code_column,
    figure_entry,
    new_table,
    number_column,
    outcome_entry,
)
from reports.views.family import rows_of

_MOVED = {"less": "less time", "more": "more time", "within": "within both", "": MISSING}
_TONES: dict[str, Any] = {"less": "good", "more": "bad", "worse": "bad", "better": "good"}


def cells_table(changes: Comparison) -> Table:
    """Every cell of either file, with what changed about it."""
    counted = changes.counters["cell"].value_counts()
    rated = changes.qualities["cell"].value_counts()
    timed = bool(changes.cells["one_machine"].any())
    rows: list[Row] = [
        (
            row["cell"],
            row["where"],
            _decision(row),
            outcome_entry(row["outcome_a"] or MISSING),
            outcome_entry(row["outcome_b"] or MISSING),
            *_share(row, "a"),
            *_share(row, "b"),
            Entry(_MOVED[row["moved"]], tone=_TONES.get(row["moved"], "")),
            _amount(counted.get(row["cell"], 0), row),
            _amount(rated.get(row["cell"], 0), row),
            *[Entry(seconds(row[f"cpu_s_{x}"]), row[f"cpu_s_{x}"]) for x in "ab" if timed],
        )
        for row in rows_of(changes.cells)
    ]
    columns: list[Column | str] = [
        *(code_column("cell"), "file", "decision", "outcome in A", "outcome in B"),
        *(number_column("share in A"), number_column("interval in A")),
        *(number_column("share in B"), number_column("interval in B"), "time moved"),
        *(number_column("counters changed"), number_column("qualities changed")),
        *[number_column(f"CPU time in {x} (information)") for x in "AB" if timed],
    ]
    return new_table(columns, rows)


def _decision(row: dict[str, Any]) -> Entry:
    return Entry(row["decision"] or MISSING, tone="bad" if row["decision"] == "different" else "")


def _share(row: dict[str, Any], which: str) -> tuple[Entry, Entry]:
    low, high = row[f"low_{which}"], row[f"high_{which}"]
    return figure_entry(row[f"ratio_{which}"]), Entry(interval(low, high), low)


def _amount(amount: int, row: dict[str, Any]) -> Entry:
    return Entry(count(amount), amount) if row["where"] == "both" else Entry(MISSING)


def counters_table(changes: Comparison) -> Table:
    """Every counter that differs."""
    rows: list[Row] = [
        (
            row["cell"],
            row["name"],
            Entry(count(row["a"]), row["a"]),
            Entry(count(row["b"]), row["b"]),
            Entry(_plus(row["b"] - row["a"]), row["b"] - row["a"]),
            Entry(_times(row["factor"]), row["factor"]),
        )
        for row in rows_of(changes.counters)
    ]
    titles = ("in A", "in B", "more", "times as many")
    columns = (code_column("cell"), code_column("counter"), *map(number_column, titles))
    return new_table(columns, rows)


def _plus(more: float) -> str:
    return f"+{count(more)}" if more > 0 else count(more)


def _times(factor: float) -> str:
    return "from none" if math.isinf(factor) else number(float(factor))


def qualities_table(changes: Comparison) -> Table:
    """Every quality that differs."""
    rows: list[Row] = [
        (
            row["cell"],
            f"{row['name']} [{row['unit']}]" if row["unit"] else row["name"],
            figure_entry(row["a"]),
            figure_entry(row["b"]),
            Entry(_change(row["change"]), row["change"]),
            Entry(row["effect"], tone=_TONES[row["effect"]]),
        )
        for row in rows_of(changes.qualities)
    ]
    numbers = (number_column("in A"), number_column("in B"), number_column("change"))
    return new_table((code_column("cell"), code_column("quality"), *numbers, "which is"), rows)


def _change(share: float) -> str:
    if not math.isfinite(share):
        return MISSING
    sign = "+" if share > 0 else "-"
    return f"{sign}{percent(abs(share)).removeprefix('< ')}" if share else "0 %"


def settings_table(changes: Comparison) -> Table:
    """Versions, machine and settings of both, those that differ set apart."""
    rows: list[Row] = [
        (
            row["what"],
            row["a"] or MISSING,
            row["b"] or MISSING,
            Entry("differs", tone="bad") if row["a"] != row["b"] else "same",
        )
        for row in rows_of(changes.settings)
    ]
    return new_table(("what", "A", "B", "the two"), rows)

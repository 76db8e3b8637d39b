"""Tables that check a family's figures: problems, goals, counters, all cells."""

import pandas as pd

from harness.measuring.statements import MIB, Reading
from harness.model.statement import SECONDS, TIMES_FASTER
from reports.core.formatting import (
    count,
    fact,
    interval,
    listing,
    number,
    percent,
    quantity,
    seconds,
)
from reports.core.frames import Results
from reports.core.table import (
    Entry,
    Table,
    code,
    interval_column,
    numbers,
    outcome_column,
    outcome_entry,
    pivoted,
    table_of,
    text,
)
from reports.family.data import FamilyView, Row, rows_of, stopped_at
from reports.family.quality import quality_columns


def problems_table(family: FamilyView, results: Results) -> Table:
    """Return a row per problem: its purpose, its facts, and its machine if there are several."""
    several = bool((results.cells["machine"] != "").any())
    found: dict[str, Row] = {}
    for cell, row in zip(results.records, rows_of(results.cells), strict=True):
        facts = "; ".join(fact(*item) for item in cell.facts.items())
        if row["family"] == family.name and (facts or row["problem"] not in found):
            found[row["problem"]] = row | {"facts": facts}
    machine = [code("machine")] * several
    columns = (code("problem"), *machine, text("why it is here", "purpose"), text("facts"))
    return table_of(found.values(), *columns)


def goals_table(family: FamilyView) -> Table:
    """Return a row per goal: its limit, the measurement, and whether it is met."""
    return table_of(
        family.goals,
        text("goal", lambda row: row.statement.name),
        numbers("limit", lambda row: Entry(_limit(row), row.limit)),
        numbers("measured", lambda row: Entry(row.measured(quantity), row.value)),
        numbers("interval", lambda row: Entry(interval(*row.interval), row.interval[0])),
        text("outcome", lambda row: outcome_entry(row.outcome)),
        code("problem", lambda row: row.pair.problem),
    )


def _limit(goal: Reading) -> str:
    statement = goal.statement
    side, limit = "at most", statement.at_most
    if statement.at_least is not None:
        side, limit = "at least", statement.at_least
    if goal.figure:
        return f"{side} {quantity(goal.limit, goal.figure.unit)}"
    of = f" of {statement.before}" if statement.before else ""
    return f"{side} {quantity(limit or 0.0, 'times' if of else '')} {statement.measure}{of}"


def shortcomings(family: FamilyView) -> list[str]:
    """Return a sentence per missed goal: measurement, limit, and the variant's longest phases."""
    sentences = []
    for goal in family.goals:
        if goal.outcome not in ("missed", "projected to be missed") or not goal.figure:
            continue
        phases = goal.after.phases if goal.after else {}
        longest = sorted(phases.items(), key=lambda phase: -phase[1])[:3]
        shares = [
            f"`{name}` {percent(spent / sum(phases.values()))}" for name, spent in longest if spent
        ]
        is_of_time = goal.statement.measure in (TIMES_FASTER, SECONDS) and shares
        goes_to = (
            f"; the time of `{goal.pair.after}` goes to {listing(shares)}" if is_of_time else ""
        )
        sentences.append(
            f"Missed: {goal.statement.name}. It is {goal.measured(quantity)} where the limit is "
            f"{quantity(goal.limit, goal.figure.unit)}{goes_to}."
        )
    return sentences


def counts(family: FamilyView) -> pd.DataFrame:
    """Return the counters on `ladder_problem`: a row per variant and a column per counter."""
    counters = family.counters[family.counters["problem"] == family.ladder_problem]
    table = counters.pivot(index="variant", columns="name", values="value")
    rows = [name for name in family.variants if name in table.index]
    return table.reindex(index=rows, columns=list(counters["name"].unique()))


def counters_table(family: FamilyView) -> Table:
    """Return the counters of every variant on `ladder_problem`, a row per variant."""
    return pivoted("variant", counts(family), count)


def cells_table(family: FamilyView) -> Table:
    """Return a row per cell of the family, with all of its qualities."""
    cells = family.cells
    several = len(set(family.against.values())) > 1
    memory = [
        numbers("peak memory [MiB]", lambda row: _memory(row, 0.0)),
        numbers("memory of the call [MiB]", lambda row: _memory(row, row["memory_before_bytes"])),
    ]
    return table_of(
        rows_of(cells),
        code("cell"),
        numbers("size", write=count),
        outcome_column(),
        *[code("machine")] * bool((cells["machine"] != "").any()),
        *[code("compared with", "against")] * several,
        numbers("share of its time" if several else "share of reference", "ratio"),
        interval_column("interval", "ratio_low", "ratio_high"),
        numbers("CPU time", "cpu_s", seconds),
        numbers("wall time", "wall_s", seconds),
        text("decision", lambda row: row["decision"] or None),
        *quality_columns(family),
        *memory * bool(cells["peak_memory_bytes"].notna().any()),
        code("fingerprint", lambda row: row["fingerprint"][:10] or None),
        text("remark", _remark),
    )


def _memory(row: Row, before: float) -> Entry:
    """Return the checked call's peak in MiB above `before` bytes; a lower bound if over budget."""
    held = (row["peak_memory_bytes"] - before) / MIB
    sign = "≥ " if row["status"] == "over budget" and held == held else ""
    return Entry(sign + number(held), held)


def _remark(row: Row) -> str:
    if row["status"] == "over budget":
        return f"{row['reason']}{stopped_at(row)}".strip()
    return "; ".join(filter(None, (row["reason"] or row["verdict_reason"], row["remark"])))

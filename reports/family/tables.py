"""The tables of one family: its problems, and its variants beside each other."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from harness.measuring.goals import MIB, Standing
from harness.model.cell import Goal
from reports.core.formatting import (
    change,
    count,
    fact,
    gap,
    hundredths,
    interval,
    number,
    percent,
    quantity,
    seconds,
)
from reports.core.frames import Results
from reports.core.table import (
    Entry,
    Table,
    TableColumn,
    code,
    interval_column,
    numbers,
    outcome_column,
    outcome_entry,
    table_of,
    text,
)
from reports.family.data import FamilyView, rows_of
from reports.family.variants import (
    counts,
    factor,
    ladder,
    ladder_by_problem,
    phase_times,
    speedups,
    stopped_at,
)

Row = Mapping[str, Any]


def problems_table(family: FamilyView, results: Results) -> Table:
    """Return the problems: why each is there, its facts, and its machine where they differ."""
    several = bool((results.cells["machine"] != "").any())
    found: dict[str, Row] = {}
    for cell, row in zip(results.records, rows_of(results.cells), strict=True):
        facts = "; ".join(fact(*each) for each in cell.facts.items())
        if row["family"] == family.name and (facts or row["problem"] not in found):
            found[row["problem"]] = row | {"facts": facts}
    machine = [code("machine")] * several
    columns = (code("problem"), *machine, text("why it is here", "purpose"), text("facts"))
    return table_of(found.values(), *columns)


def goals_table(family: FamilyView) -> Table:
    """Return every goal with its limit, what was measured, and whether it is met."""
    return table_of(
        family.standings,
        text("goal", lambda row: row[0].text),
        numbers("limit", lambda row: Entry(_limit(row[0], row[2]), row[2].limit)),
        numbers("measured", lambda row: Entry(row[2].measured(quantity), row[2].value)),
        numbers("interval", lambda row: Entry(interval(row[2].low, row[2].high), row[2].low)),
        text("outcome", lambda row: outcome_entry(row[2].outcome)),
        code("problem", lambda row: str(row[1].problem)),
    )


def _limit(goal: Goal, found: Standing) -> str:
    limit = found.limit if math.isfinite(found.limit) else goal.limit
    if goal.measure == "times faster":
        return f"at least {quantity(limit, 'times')}"
    if not math.isfinite(found.limit) and goal.against:  # its figure is not known either
        return f"at most {quantity(limit, 'times')} that of {goal.against}"
    return f"at most {quantity(limit, 's' if goal.measure == 'seconds' else found.unit)}"


def ladder_table(family: FamilyView) -> Table:
    """Return the ladder on its problem: claims, measurements, and the first quality."""
    return table_of(
        rows_of(ladder(family)),
        code("variant"),
        numbers("published step", _published),
        numbers("published share", "published_share"),
        numbers("measured share", "ratio"),
        interval_column("interval", "low", "high"),
        numbers("CPU time", "cpu_s", seconds),
        outcome_column(),
        *quality_columns(family, family.ladder_problem, first=True),
    )


def _published(row: Row) -> Entry | None:
    after = row["published_after"]
    if after != after:
        return None
    return Entry(change(row["published_before"], after, row["published_unit"]), after)


def _pivoted(title: str, frame: pd.DataFrame, write: Callable[[float], str] = number) -> Table:
    """Return a frame's index as a column of that title, and its numbers beside it."""
    rows = zip(map(str, frame.index), *(frame[name].astype(float) for name in frame), strict=True)
    columns = (numbers(str(name), place, write) for place, name in enumerate(frame, start=1))
    return table_of(rows, code(title, 0), *columns)


def ladder_by_problem_table(family: FamilyView) -> Table:
    """Return the ladder's measured shares on every problem."""
    return _pivoted("problem", ladder_by_problem(family))


def counters_table(family: FamilyView) -> Table:
    """Return the counters of every variant on the problem of the ladder."""
    return _pivoted("variant", counts(family), count)


def growth_table(family: FamilyView) -> Table:
    """Return the fitted exponents of every variant and sweep."""
    return table_of(
        rows_of(family.exponents),
        code("variant"),
        code("problems", "sweep"),
        numbers("sizes", write=count),
        numbers("range", lambda row: _range(row) if row["sizes"] else None),
        numbers("exponent", write=hundredths),
        numbers("95 % interval", _exponents),
        numbers("over budget from", "over_budget", count),
    )


def _range(row: Row) -> Entry:
    return Entry(f"{count(row['smallest'])} to {count(row['largest'])}", row["largest"])


def _exponents(row: Row) -> Entry:
    if row["exponent"] != row["exponent"]:
        return Entry("too few sizes")
    return Entry(interval(row["low"], row["high"], hundredths), row["low"])


def quality_table(family: FamilyView) -> Table:
    """Return time and every quality on the problem with most decisions of their own."""
    rated = set(family.primary_qualities["cell"])
    on_it = family.on(family.quality_problem).values()
    return table_of(
        (cell for cell in on_it if cell["cell"] in rated),
        code("variant"),
        text("decision"),
        numbers("CPU time", "cpu_s", seconds),
        numbers("share", "ratio"),
        *quality_columns(family, family.quality_problem),
    )


def quality_columns(
    family: FamilyView, problem: str = "", first: bool = False
) -> list[TableColumn]:
    """Return columns of all qualities of a family, on one problem or all, and of the gap.

    `first` takes in the first quality, its bound and the gap only. Rows need a `variant`, and a
    `problem` unless one is named.
    """
    held = family.qualities
    if problem:
        held = held[held["problem"] == problem]
    units = dict(zip(held["name"], held["unit"], strict=True))
    bound = family.bound
    if first:
        shown = {next(iter(units), ""), bound.name if bound else ""}
        units = {name: unit for name, unit in units.items() if name in shown}
    if bound:  # a gap that the family gives is the one that is shown anyway, in per cent
        units.pop("gap", None)
    values = held.set_index(["problem", "variant", "name"])["value"].to_dict()
    gaps = family.cells.set_index(["problem", "variant"])["gap"].to_dict()

    def place(row: Row) -> tuple[str, str]:
        return problem or row["problem"], row["variant"]

    def column(name: str, unit: str) -> TableColumn:
        title = f"{name} [{unit}]" if unit else name
        return numbers(title, lambda row: values.get((*place(row), name)))

    gap_column = numbers("gap", lambda row: gaps.get(place(row)), gap)
    return [*(column(*each) for each in units.items()), *[gap_column] * bool(bound)]


def phases_table(family: FamilyView) -> Table:
    """Return seconds and shares of every phase, a row per variant."""
    times = phase_times(family)
    whole = times.groupby("variant", sort=False)["seconds"].sum()
    spent = {(row["variant"], row["name"]): row for row in rows_of(times)}

    def column(name: str) -> TableColumn:
        return numbers(name, lambda row: _phase(spent.get((row[0], name))))

    return table_of(
        whole.items(),
        code("variant", 0),
        numbers("whole", 1, seconds),
        *map(column, times["name"].unique()),
    )


def _phase(row: Row | None) -> Entry | None:
    if row is None:
        return None
    return Entry(f"{seconds(row['seconds'])} ({percent(row['share'])})", row["seconds"])


def cells_table(family: FamilyView) -> Table:
    """Return every cell of the family, with all of its qualities."""
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
    """Memory of the checked call; of a call over budget the least that it can be."""
    held = (row["peak_memory_bytes"] - before) / MIB
    sign = "≥ " if row["status"] == "over budget" and held == held else ""
    return Entry(sign + number(held), held)


def _remark(row: Row) -> str:
    if row["status"] == "over budget":
        return f"{row['reason']}{stopped_at(row)}".strip()
    return str(row["reason"] or row["verdict_reason"])


def speedup_tables(family: FamilyView) -> Iterator[tuple[str, Table]]:
    """Yield for each problem compared with another variant a caption and a row per variant."""
    for (problem, against), group in speedups(family).groupby(["problem", "against"], sort=False):
        table = table_of(
            rows_of(group),
            code("variant"),
            numbers("CPU time", "cpu_s", seconds),
            numbers("times as fast", lambda row: Entry(factor(row), row["times_as_fast"])),
            interval_column("interval", "low", "high"),
            outcome_column(),
            text("decision"),
            *quality_columns(family, str(problem), first=True),
        )
        yield f"`{problem}`, compared with `{against}`.", table

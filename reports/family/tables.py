"""The tables of a family: most are cells with named columns, see `reports.core.columns`."""

import math
from collections.abc import Iterator, Mapping

from harness.measuring.statements import Reading
from harness.model.cell import Cell
from harness.model.statement import SECONDS, TIMES_FASTER
from reports.core.columns import cell_table
from reports.core.formatting import (
    MISSING,
    change,
    count,
    hundredths,
    interval,
    listing,
    percent,
    quantity,
)
from reports.core.table import (
    Entry,
    Table,
    code,
    numbers,
    outcome_entry,
    table_of,
    text,
)
from reports.family.data import FamilyView, Row, rows_of
from reports.family.ladder import ladder

_COMPARISON = ("variant", "cpu", "ratio", "reach", "projected", "verdict", "qualities", "gap")


def problems_table(family: FamilyView) -> Table:
    """Return a row per problem: its purpose, its facts, and its machine if there are several."""
    first: dict[str, Cell] = {}
    for cell in sorted(family.records, key=lambda cell: not cell.facts):
        first.setdefault(str(cell.problem), cell)
    cells = [first[problem] for problem in family.against]
    return cell_table(cells, "problem", "machine", "purpose", "facts")


def cells_table(family: FamilyView) -> Table:
    """Return a row per cell of the family, with all that is known of it."""
    return cell_table(
        family.records,
        *("cell", "size", "machine", "against", "cpu", "wall", "ratio", "reach", "projected"),
        *("verdict", "qualities", "gap", "peak", "grown", "fingerprint", "note"),
    )


def counters_table(family: FamilyView) -> Table:
    """Return the counters of every variant on `ladder_problem`, a row per variant."""
    cells = family.variants_on(family.ladder_problem).values()
    return cell_table([cell for cell in cells if cell.counters], "variant", "counters")


def quality_table(family: FamilyView) -> Table:
    """Return a row per variant with a quality on `quality_problem`: time and all qualities."""
    cells = family.variants_on(family.quality_problem).values()
    return cell_table([cell for cell in cells if cell.quality], *_COMPARISON)


def speedup_tables(family: FamilyView) -> Iterator[tuple[str, Table]]:
    """Yield a caption and a table per problem with another baseline than the reference."""
    for problem, against in family.against.items():
        if against != family.reference:
            cells = list(family.variants_on(problem).values())
            yield f"`{problem}`, compared with `{against}`.", cell_table(cells, *_COMPARISON)


def ladder_table(family: FamilyView, flames: Mapping[str, str]) -> Table:
    """Return a row per rung on `ladder_problem`: claim, measurement, first quality.

    `flames` has the address of a page of flame graphs by variant.
    """
    rungs = {row["variant"]: row for row in rows_of(ladder(family))}
    cells = family.variants_on(family.ladder_problem)

    def published(cell: Cell) -> Entry | None:
        row = rungs[cell.variant]
        after, unit = row["published_after"], row["published_unit"]
        if math.isnan(after):
            return None
        return Entry(change(row["published_before"], after, unit), after)

    def flame_graphs(cell: Cell) -> Entry:
        page = flames.get(cell.variant)
        return Entry("open", link=page) if page else Entry(MISSING)

    return cell_table(
        [cells[variant] for variant in rungs if variant in cells],
        "variant",
        numbers("published step", published),
        numbers("published share", lambda cell: rungs[cell.variant]["published_share"]),
        *("ratio", "reach", "cpu", "verdict", "quality", "gap"),
        text("flame graphs", flame_graphs),
    )


def growth_table(family: FamilyView) -> Table:
    """Return a row per variant and sweep, with its fitted exponent."""

    def sizes(row: Row) -> Entry:
        return Entry(f"{count(row['smallest'])} to {count(row['largest'])}", row["largest"])

    def ends(row: Row) -> Entry:
        return Entry(interval(row["low"], row["high"], hundredths), row["low"])

    return table_of(
        rows_of(family.exponents),
        code("variant"),
        code("problems", "sweep"),
        numbers("sizes", write=count),
        numbers("range", lambda row: sizes(row) if row["sizes"] else None),
        numbers("exponent", write=hundredths),
        numbers("95 % interval", ends),
        numbers("over budget from", "over_budget", count),
    )


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

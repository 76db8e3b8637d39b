"""The tables of a family: most are cells with named columns, see `reports.core.columns`."""

import math
from collections.abc import Iterator, Mapping

from harness.measuring.goals import Standing
from harness.model.cell import Cell
from harness.model.overview import Goal
from reports.core.columns import cell_table
from reports.core.formatting import MISSING, change, count, hundredths, interval, quantity
from reports.core.table import (
    Entry,
    Table,
    code,
    numbers,
    outcome_entry,
    table_of,
    text,
)
from reports.family.data import FamilyView
from reports.family.growth import PowerLaw, Series
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
    rungs = {rung.variant: rung for rung in ladder(family)}

    def published(cell: Cell) -> Entry | None:
        claim = rungs[cell.variant].claim
        if claim is None:
            return None
        return Entry(change(claim.before, claim.after, claim.unit), claim.after)

    def flame_graphs(cell: Cell) -> Entry:
        page = flames.get(cell.variant)
        return Entry("open", link=page) if page else Entry(MISSING)

    return cell_table(
        [rung.cell for rung in rungs.values() if rung.cell],
        "variant",
        numbers("published step", published),
        numbers("published share", lambda cell: rungs[cell.variant].share),
        *("ratio", "reach", "cpu", "verdict", "quality", "gap"),
        text("flame graphs", flame_graphs),
    )


def growth_table(family: FamilyView) -> Table:
    """Return a row per variant and sweep, with its fitted exponent."""

    def sizes(row: Series) -> Entry | None:
        sizes = [point.size for point in row.measured]
        return Entry(f"{count(min(sizes))} to {count(max(sizes))}", max(sizes)) if sizes else None

    return table_of(
        family.series,
        code("variant"),
        code("problems", "sweep"),
        numbers("sizes", lambda row: len({point.size for point in row.measured}), count),
        numbers("range", sizes),
        numbers("exponent", lambda row: row.fit and row.fit.exponent, hundredths),
        numbers("95 % interval", lambda row: row.fit and _ends(row.fit)),
        numbers("over budget from", _first_stopped, count),
    )


def _ends(fit: PowerLaw) -> Entry:
    return Entry(interval(fit.low, fit.high, hundredths), fit.low)


def _first_stopped(row: Series) -> float | None:
    return min((point.size for point in row.points if not point.is_measured), default=None)


def goals_table(family: FamilyView) -> Table:
    """Return a row per goal: its limit, the measurement, and whether it is met."""
    return table_of(
        family.standings,
        text("goal", lambda row: row[0].text),
        numbers("limit", lambda row: Entry(_limit(row[0], row[2]), row[2].limit)),
        numbers("measured", lambda row: Entry(row[2].measured(quantity), row[2].value)),
        numbers("interval", lambda row: Entry(interval(row[2].low, row[2].high), row[2].low)),
        text("outcome", lambda row: outcome_entry(row[2].outcome)),
        code("problem", lambda row: str(row[1].problem)),
    )


def _limit(goal: Goal, standing: Standing) -> str:
    limit = standing.limit if math.isfinite(standing.limit) else goal.limit
    if goal.measure == "times faster":
        return f"at least {quantity(limit, 'times')}"
    if not math.isfinite(standing.limit) and goal.against:  # the figure of `against` is unknown
        return f"at most {quantity(limit, 'times')} that of {goal.against}"
    return f"at most {quantity(limit, 's' if goal.measure == 'seconds' else standing.unit)}"

"""Tables of what was validated: plans, agreement, residuals; and of what was calibrated."""

import math
import statistics
from collections.abc import Sequence

from harness.contract.abilities.validation import FittedFigure, FittedMachine
from harness.estimates.statistics import Agreement
from harness.estimates.validation import DecisionFound, Validation
from reports.core.formatting import figure
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text


def decisions_table(found: Validation) -> Table:
    """Return a row for each plan, the fastest first."""
    estimates = [each.estimate for each in found.agreements]
    rows = sorted(found.decisions, key=lambda each: each.measured.value)

    def estimated(name: str) -> TableColumn:
        return numbers(f"{name}\nms", lambda row: row.estimated_ms[name], figure)

    return table_of(
        rows,
        text("plan", "name", least=12),
        numbers("measured\nms", lambda row: row.measured.value, figure),
        numbers("from\nto", _span),
        *map(estimated, estimates),
        numbers("links\nmodelled", "modelled_ms", figure),
    )


def _span(row: DecisionFound) -> Entry:
    low, high = row.measured.low, row.measured.high
    return Entry(f"{figure(low)} to {figure(high)}", low)


def agreements_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate of each problem."""
    rows = [(one.problem, each) for one in found for each in one.agreements]
    problem = [code("problem", lambda row: row[0])] if len(found) > 1 else []
    return table_of(
        rows,
        *problem,
        text("estimate", lambda row: row[1].estimate),
        numbers("rank correlation", _correlation),
        numbers("apart", _apart),
        text("top 1", lambda row: _top(row[1])),
        numbers("regret", lambda row: row[1].regret, off_by),
        numbers("error", lambda row: row[1].error, off_by),
        numbers("scaled", lambda row: row[1].scaled_error, off_by),
    )


def summary_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate, over all problems that have it."""
    by_name: dict[str, list[Agreement]] = {}
    for one in found:
        for each in one.agreements:
            by_name.setdefault(each.estimate, []).append(each)

    def mean_error(row: tuple[str, list[Agreement]]) -> float:
        return math.expm1(statistics.fmean(math.log1p(each.error) for each in row[1]))

    def apart(row: tuple[str, list[Agreement]]) -> float | None:
        known = [each.spearman_apart for each in row[1] if each.spearman_apart is not None]
        return statistics.fmean(known) if known else None

    return table_of(
        list(by_name.items()),
        text("estimate", lambda row: row[0]),
        numbers("problems", lambda row: len(row[1]), str),
        numbers("top 1", lambda row: sum(each.is_top for each in row[1]), str),
        numbers("or within noise", lambda row: sum(each.is_first for each in row[1]), str),
        numbers("regret\nmean", lambda row: statistics.fmean(e.regret for e in row[1]), off_by),
        numbers("regret\nmost", lambda row: max(each.regret for each in row[1]), off_by),
        numbers("error", mean_error, off_by),
        numbers("apart", apart, _two),
    )


def _two(value: float) -> str:
    return f"{value:.2f}"


_NOTHING = 1e-13  # milliseconds for a byte: what is less is what a fit that wants 0 comes to


def off_by(value: float) -> str:
    """Return an error as a percentage, or as a factor where it is large."""
    return f"{value:.1%}" if value < 10 else f"{value + 1:,.0f} x"


def _correlation(row: tuple[str, Agreement]) -> Entry:
    each = row[1]
    span = f"{each.spearman_low:.2f} to {each.spearman_high:.2f}"
    return Entry(f"{each.spearman:.2f} ({span})", each.spearman)


def _apart(row: tuple[str, Agreement]) -> Entry:
    each = row[1]
    if each.spearman_apart is None:
        return Entry("-")
    return Entry(f"{each.spearman_apart:.2f} of {each.apart}", each.spearman_apart)


def _top(each: Agreement) -> Entry:
    if each.is_top:
        return Entry("yes", tone="good")
    return (
        Entry("within noise", tone="soft") if each.is_top_within_noise else Entry("no", tone="bad")
    )


def residuals_table(found: Validation) -> Table:
    """Return a row for each kind of rank, with the factor by which each estimate is off."""
    estimates = [each.estimate for each in found.agreements]
    kinds = dict.fromkeys((each.fact, each.value) for each in found.residuals)
    held = {(each.fact, each.value, each.estimate): each for each in found.residuals}

    def off(name: str) -> TableColumn:
        def value(row: tuple[str, str]) -> float | None:
            each = held.get((*row, name))
            return each.factor if each else None

        return numbers(name, value, _two)

    def ranks(row: tuple[str, str]) -> int:
        return max(held[(*row, name)].ranks for name in estimates if (*row, name) in held)

    return table_of(
        list(kinds),
        text("ranks mostly of", lambda row: f"{row[0]} {row[1]}"),
        numbers("ranks", ranks, str),
        *map(off, estimates),
    )


def figures_table(machine: FittedMachine) -> Table:
    """Return a row for each figure that was fitted."""
    return table_of(
        machine.figures,
        code("figure, in ms if no other unit", _named, least=39),
        numbers("value", "value", _three),
        numbers("from", "low", _three),
        numbers("to", "high", _three),
    )


def _named(row: FittedFigure) -> str:
    unit = "" if row.unit in ("", "ms") else f", {row.unit.replace(' per ', '/')}"
    return row.name + unit


def _three(value: float) -> str:
    return f"{value:.3g}" if value > _NOTHING else "0"


def errors_table(machine: FittedMachine) -> Table:
    """Return a row for each form and each kind of point."""
    return table_of(
        machine.errors,
        text("form"),
        text("points", "purpose"),
        numbers("number", "points", str),
        numbers("error", "error", off_by),
    )

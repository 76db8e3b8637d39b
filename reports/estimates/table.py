"""Tables of validations (plans, agreement, residuals) and of calibrations (figures, errors)."""

import math
import statistics
from collections.abc import Sequence

from harness.contract.abilities.estimates import FittedFigure, FittedMachine
from harness.estimates.agreement import Agreement
from harness.estimates.validation import DecisionFound, Residual, Validation
from reports.core.formatting import figure, hundredths
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text

_NOTHING = 1e-13  # milliseconds per byte: a smaller fitted figure is shown as 0


def off_by(value: float) -> str:
    """Write a relative error as a percentage, or from 1000 % on as a factor."""
    return f"{value:.1%}" if value < 10 else f"{value + 1:,.0f} x"


def decisions_table(found: Validation) -> Table:
    """Return a row for each plan, the fastest measured plan first."""

    def estimated(name: str) -> TableColumn:
        return numbers(f"{name}\nms", lambda row: row.estimated_ms[name], figure)

    return table_of(
        sorted(found.decisions, key=lambda decision: decision.measured.value),
        text("plan", "name", least=12),
        numbers("measured\nms", lambda row: row.measured.value, figure),
        numbers("from\nto", _span),
        *(estimated(agreement.estimate) for agreement in found.agreements),
        numbers("links\nmodelled", "modelled_ms", figure),
    )


def _span(row: DecisionFound) -> Entry:
    low, high = row.measured.low, row.measured.high
    return Entry(f"{figure(low)} to {figure(high)}", low)


def agreements_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate of each problem."""
    rows = [(one.problem, agreement) for one in found for agreement in one.agreements]
    return table_of(
        rows,
        *([code("problem", 0)] if len(found) > 1 else []),
        text("estimate", lambda row: row[1].estimate),
        numbers("rank correlation", lambda row: _correlation(row[1])),
        numbers("apart", lambda row: _apart(row[1])),
        text("top 1", lambda row: _top(row[1])),
        numbers("regret", lambda row: row[1].regret, off_by),
        numbers("error", lambda row: row[1].error, off_by),
        numbers("scaled", lambda row: row[1].scaled_error, off_by),
    )


def _correlation(row: Agreement) -> Entry:
    span = f"{row.spearman_low:.2f} to {row.spearman_high:.2f}"
    return Entry(f"{row.spearman:.2f} ({span})", row.spearman)


def _apart(row: Agreement) -> Entry:
    if row.spearman_apart is None:
        return Entry("-")
    return Entry(f"{row.spearman_apart:.2f} of {row.apart}", row.spearman_apart)


def _top(row: Agreement) -> Entry:
    if row.is_top:
        return Entry("yes", tone="good")
    return Entry("within noise", tone="soft") if row.is_first else Entry("no", tone="bad")


def by_estimate(found: Sequence[Validation]) -> dict[str, list[Agreement]]:
    """Group the agreements of all problems by the name of their estimate."""
    agreements: dict[str, list[Agreement]] = {}
    for one in found:
        for agreement in one.agreements:
            agreements.setdefault(agreement.estimate, []).append(agreement)
    return agreements


def summary_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate, summarizing all problems that have this estimate."""
    return table_of(
        by_estimate(found).values(),
        text("estimate", lambda group: group[0].estimate),
        numbers("problems", len, str),
        numbers("top 1", lambda group: sum(one.is_top for one in group), str),
        numbers("or within noise", lambda group: sum(one.is_first for one in group), str),
        numbers("regret\nmean", lambda group: statistics.fmean(o.regret for o in group), off_by),
        numbers("regret\nmost", lambda group: max(one.regret for one in group), off_by),
        numbers("error", _mean_error, off_by),
        numbers("apart", _mean_apart, hundredths),
    )


def _mean_error(group: Sequence[Agreement]) -> float:
    return math.expm1(statistics.fmean(math.log1p(one.error) for one in group))


def _mean_apart(group: Sequence[Agreement]) -> float | None:
    known = [one.spearman_apart for one in group if one.spearman_apart is not None]
    return statistics.fmean(known) if known else None


def residuals_table(found: Validation) -> Table:
    """Return a row per group of ranks, with the factor by which each estimate is off there.

    Ranks are grouped by the kind of table that most of their bytes belong to.
    """
    kinds: dict[str, dict[str, Residual]] = {}
    for residual in found.residuals:
        kind = f"{residual.fact} {residual.value}"
        kinds.setdefault(kind, {})[residual.estimate] = residual

    def off(name: str) -> TableColumn:
        return numbers(
            name, lambda row: row[1][name].factor if name in row[1] else None, hundredths
        )

    return table_of(
        kinds.items(),
        text("ranks mostly of", 0),
        numbers("ranks", lambda row: max(residual.ranks for residual in row[1].values()), str),
        *(off(agreement.estimate) for agreement in found.agreements),
    )


def figures_table(machine: FittedMachine) -> Table:
    """Return a row for each fitted figure of a machine, with its interval."""
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
    """Return a row for each form and purpose of points: their number and the fit's error."""
    return table_of(
        machine.errors,
        text("form"),
        text("points", "purpose"),
        numbers("number", "points", str),
        numbers("error", "error", off_by),
    )

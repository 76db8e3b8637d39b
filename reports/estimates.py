"""Tables of estimates against measurements: plans, agreement, memory, and calibrated machines."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from harness.contract.estimates import FittedFigure, FittedMachine
from harness.estimates.memory import MemoryValidation, TermFound
from harness.estimates.validation import Agreement, DecisionFound, Validation
from reports.core.formatting import figure, hundredths
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text

_MIB = 2**20
_NOTHING = 1e-13  # milliseconds per byte: a smaller fitted figure is shown as 0


def off_by(value: float) -> str:
    """Write a relative error as a percentage, or from 1000 % on as a factor."""
    return f"{value:.1%}" if value < 10 else f"{value + 1:,.0f} x"


def _each(
    names: Sequence[str],
    title: str,
    value: Callable[[Any, str], float | None],
    write: Callable[[float], str],
) -> list[TableColumn]:
    """Return a column per estimate, with the value of a row and the estimate's name."""

    def column(name: str) -> TableColumn:
        return numbers(title.format(name), lambda row: value(row, name), write)

    return [column(name) for name in names]


def decisions_table(found: Validation) -> Table:
    """Return a row for each plan, the fastest measured plan first."""

    def span(row: DecisionFound) -> Entry:
        low, high = row.measured.low, row.measured.high
        return Entry(f"{figure(low)} to {figure(high)}", low)

    names = [agreement.estimate for agreement in found.agreements]
    return table_of(
        sorted(found.decisions, key=lambda decision: decision.measured.value),
        text("plan", "name", least=12),
        numbers("measured\nms", lambda row: row.measured.value, figure),
        numbers("from\nto", span),
        *_each(names, "{}\nms", lambda row, name: row.estimated_ms[name], figure),
        numbers("links\nmodelled", "modelled_ms", figure),
    )


def agreements_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate of each problem."""

    def correlation(row: Agreement) -> Entry:
        span = f"{row.spearman_low:.2f} to {row.spearman_high:.2f}"
        return Entry(f"{row.spearman:.2f} ({span})", row.spearman)

    def apart(row: Agreement) -> Entry:
        if row.spearman_apart is None:
            return Entry("-")
        return Entry(f"{row.spearman_apart:.2f} of {row.apart}", row.spearman_apart)

    def top(row: Agreement) -> Entry:
        if row.is_top:
            return Entry("yes", tone="good")
        return Entry("within noise", tone="soft") if row.is_first else Entry("no", tone="bad")

    return table_of(
        [(one.problem, agreement) for one in found for agreement in one.agreements],
        *([code("problem", 0)] if len(found) > 1 else []),
        text("estimate", lambda row: row[1].estimate),
        numbers("rank correlation", lambda row: correlation(row[1])),
        numbers("apart", lambda row: apart(row[1])),
        text("top 1", lambda row: top(row[1])),
        numbers("regret", lambda row: row[1].regret, off_by),
        numbers("error", lambda row: row[1].error, off_by),
        numbers("scaled", lambda row: row[1].scaled_error, off_by),
    )


def summary_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate, summarizing all problems that have this estimate."""

    def mean_apart(group: Sequence[Agreement]) -> float | None:
        known = [one.spearman_apart for one in group if one.spearman_apart is not None]
        return statistics.fmean(known) if known else None

    def mean_error(group: Sequence[Agreement]) -> float:
        return math.expm1(statistics.fmean(math.log1p(one.error) for one in group))

    agreements: dict[str, list[Agreement]] = defaultdict(list)
    for agreement in (agreement for one in found for agreement in one.agreements):
        agreements[agreement.estimate].append(agreement)
    return table_of(
        agreements.values(),
        text("estimate", lambda group: group[0].estimate),
        numbers("problems", len, str),
        numbers("top 1", lambda group: sum(one.is_top for one in group), str),
        numbers("or within noise", lambda group: sum(one.is_first for one in group), str),
        numbers("regret\nmean", lambda group: statistics.fmean(o.regret for o in group), off_by),
        numbers("regret\nmost", lambda group: max(one.regret for one in group), off_by),
        numbers("error", mean_error, off_by),
        numbers("apart", mean_apart, hundredths),
    )


def residuals_table(found: Validation) -> Table:
    """Return a row per group of ranks, with the factor by which each estimate is off there.

    Ranks are grouped by the kind of table that most of their bytes belong to.
    """
    kinds: dict[str, dict[str, float]] = defaultdict(dict)
    ranks: dict[str, int] = {}
    for residual in found.residuals:
        kind = f"{residual.fact} {residual.value}"
        kinds[kind][residual.estimate] = residual.factor
        ranks[kind] = max(ranks.get(kind, 0), residual.ranks)
    names = [agreement.estimate for agreement in found.agreements]
    return table_of(
        kinds,
        text("ranks mostly of", str),
        numbers("ranks", ranks.get, str),
        *_each(names, "{}", lambda kind, name: kinds[kind].get(name), hundredths),
    )


def _estimates_of(found: Sequence[MemoryValidation]) -> list[str]:
    return list(dict.fromkeys(name for one in found for name in one.ranks[0].whole.estimated))


def peaks_table(found: Sequence[MemoryValidation]) -> Table:
    """Return a row per problem: the largest measured peak, and each estimate's errors."""

    def errors(row: MemoryValidation, name: str) -> list[float]:
        return [abs(error) for error in row.errors(name)]

    names = _estimates_of(found)
    return table_of(
        found,
        code("problem"),
        numbers("ranks", lambda row: len(row.ranks), str),
        numbers("peak\nMiB", lambda row: max(r.whole.measured for r in row.ranks) / _MIB, figure),
        *_each(names, "{}\nlargest error", lambda row, name: max(errors(row, name)), off_by),
        *_each(names, "{}\nmean", lambda row, name: statistics.fmean(errors(row, name)), off_by),
    )


def terms_table(found: Sequence[MemoryValidation]) -> Table:
    """Return a row per kind of table, optimizer and term: summed MiB, and estimate / measured.

    Terms that are 0 by measurement and by all estimates are left out.
    """
    rows: dict[tuple[str, str, str], list[TermFound]] = defaultdict(list)
    for one in found:
        for rank in one.ranks:
            for term in rank.terms:
                rows[term.group, rank.setting, term.term].append(term)

    def measured(terms: Sequence[TermFound]) -> float:
        return sum(term.measured for term in terms) / _MIB

    def ratio(row: tuple[object, Sequence[TermFound]], name: str) -> float | None:
        terms = [term for term in row[1] if name in term.estimated]
        whole = measured(terms)
        return sum(term.estimated[name] for term in terms) / _MIB / whole if whole else None

    return table_of(
        [
            (key, terms)
            for key, terms in sorted(rows.items(), key=lambda row: row[0][:2])
            if any(term.measured or any(term.estimated.values()) for term in terms)
        ],
        text("sharding type, kernel", lambda row: row[0][0]),
        text("optimizer", lambda row: row[0][1]),
        text("term", lambda row: row[0][2]),
        numbers("measured\nMiB", lambda row: measured(row[1]), figure),
        *_each(_estimates_of(found), "{}\n/ measured", ratio, hundredths),
    )


def figures_table(machine: FittedMachine) -> Table:
    """Return a row for each fitted figure of a machine, with its interval."""

    def name(row: FittedFigure) -> str:
        unit = "" if row.unit in ("", "ms") else f", {row.unit.replace(' per ', '/')}"
        return row.name + unit

    def write(value: float) -> str:
        return f"{value:.3g}" if value > _NOTHING else "0"

    return table_of(
        machine.figures,
        code("figure, in ms if no other unit", name, least=39),
        numbers("value", "value", write),
        numbers("from", "low", write),
        numbers("to", "high", write),
    )


def errors_table(machine: FittedMachine) -> Table:
    """Return a row for each form and purpose of points: their number and the fit's error."""
    return table_of(
        machine.errors,
        text("form"),
        text("points", "purpose"),
        numbers("number", "points", str),
        numbers("error", "error", off_by),
    )

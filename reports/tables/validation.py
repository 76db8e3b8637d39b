"""Tables of what was validated: plans, agreement, residuals; and of what was calibrated."""

from collections.abc import Sequence

from harness.contract.validation import FittedMachine
from harness.validating.links import links_ms
from harness.validating.statistics import Agreement
from harness.validating.validation import DecisionFound, Validation
from reports.formatting import figure
from reports.tables.table import Entry, Table, TableColumn, code, numbers, table_of, text


def decisions_table(found: Validation) -> Table:
    """Return a row for each plan, the fastest first."""
    estimates = [each.estimate for each in found.agreements]
    rows = sorted(found.decisions, key=lambda each: each.measured.value)

    def estimated(name: str) -> TableColumn:
        return numbers(f"{name}\nms", lambda row: row.estimated_ms[name], figure)

    def linked(row: DecisionFound) -> float | None:
        return links_ms(found.links, row.bytes_sent)

    return table_of(
        rows,
        text("plan", "name", least=12),
        numbers("measured\nms", lambda row: row.measured.value, figure),
        numbers("from\nto", _span),
        *map(estimated, estimates),
        numbers("links, modelled\nms", "modelled_ms", figure),
        *([numbers("links, measured\nms", linked, figure)] if found.links else []),
    )


def _span(row: DecisionFound) -> Entry:
    low, high = row.measured.low, row.measured.high
    return Entry(f"{figure(low)} to {figure(high)}", low)


def agreements_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate of each problem."""
    rows = [(one.problem, each, len(one.decisions)) for one in found for each in one.agreements]
    problem = [code("problem", lambda row: row[0])] if len(found) > 1 else []
    return table_of(
        rows,
        *problem,
        text("estimate", lambda row: row[1].estimate),
        numbers("plans", lambda row: row[2], str),
        numbers("Spearman", lambda row: row[1].spearman, _two),
        numbers("from to", _interval),
        numbers("apart", _apart),
        text("top 1", lambda row: _top(row[1])),
        numbers("regret", lambda row: row[1].regret, _percent),
        numbers("error", lambda row: row[1].error, _percent),
        numbers("scaled", lambda row: row[1].scaled_error, _percent),
    )


def _two(value: float) -> str:
    return f"{value:.2f}"


def _percent(value: float) -> str:
    return f"{value:.1%}" if value < 10 else f"{value + 1:,.0f} x"


def _interval(row: tuple[str, Agreement, int]) -> Entry:
    each = row[1]
    return Entry(f"{each.spearman_low:.2f} to {each.spearman_high:.2f}", each.spearman_low)


def _apart(row: tuple[str, Agreement, int]) -> Entry:
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
        code("figure", "name", least=30),
        numbers("value", "value", _four),
        numbers("from", "low", _four),
        numbers("to", "high", _four),
        text("unit", lambda row: row.unit or "-", least=12),
    )


def _four(value: float) -> str:
    return f"{value:.3g}"


def errors_table(machine: FittedMachine) -> Table:
    """Return a row for each form and each kind of point."""
    return table_of(
        machine.errors,
        text("form"),
        text("points", "purpose"),
        numbers("number", "points", str),
        numbers("error", "error", _percent),
    )

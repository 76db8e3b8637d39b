"""Estimates beside measurements: tables of times, memory and machines, and the report's chapter."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.contract.estimates import FittedFigure, FittedMachine
from harness.estimates.memory import MeasuredTerm, MemoryValidation
from harness.estimates.validation import Agreement, MeasuredDecision, Validation
from harness.model.declared import checked
from harness.model.errors import UsageError
from harness.model.files import read_json
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, ORANGE, VERMILION, Drawing
from reports.core.formatting import figure, hundredths
from reports.core.page import CaptionedTable, Section
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text

_MIB = 2**20
_NOTHING = 1e-13  # milliseconds per byte: a smaller fitted figure is shown as 0
_LOOKS = (("o", VERMILION), ("s", ORANGE), ("D", BLUE))
_LEAD = (
    "The computation of a plan's ranks, estimated and measured with fbgemm's own kernels, one rank "
    "after the other. Communication is not included. Milliseconds are relative to a reference "
    "timed just before each of them, so compare them within one problem only."
)
_SUMMARY = (
    "All problems together. Top 1: how often the plan with the best estimate is the fastest "
    "measured plan, or as fast as that within the intervals; error: the geometric mean over "
    "problems; apart: mean rank correlation of plans with intervals that do not overlap."
)
_TERMS = (
    "Rank correlation: Spearman's, with its 95 % interval; apart: the same for plans with "
    "intervals that do not overlap, and their number; regret: how much slower the plan with the "
    "best estimate is than the fastest one; error: geometric mean of the factor between estimate "
    "and measurement; scaled: the same after scaling all estimates by one factor."
)
_RESIDUALS = (
    "Factors by which estimates are off, by the kind of table that most of a rank's bytes belong "
    "to; their common factor is taken out."
)


def _off_by(value: float) -> str:
    """Write a relative error as a percentage, or from 1000 % on as a factor."""
    return f"{value:.1%}" if value < 10 else f"{value + 1:,.0f} x"


def _by_estimate(
    names: Sequence[str],
    title: str,
    value: Callable[[Any, str], float | None],
    write: Callable[[float], str],
) -> list[TableColumn]:
    """Return a column for each estimate, with the value of a row and the estimate's name."""

    def column(name: str) -> TableColumn:
        return numbers(title.format(name), lambda row: value(row, name), write)

    return [column(name) for name in names]


def _estimates(validation: Validation) -> list[str]:
    return [agreement.estimate for agreement in validation.agreements]


def decisions_table(validation: Validation) -> Table:
    """Return a row for each plan, the fastest measured plan first."""

    def span(row: MeasuredDecision) -> Entry:
        low, high = row.measured.low, row.measured.high
        return Entry(f"{figure(low)} to {figure(high)}", low)

    return table_of(
        sorted(validation.decisions, key=lambda decision: decision.measured.value),
        text("plan", "name", least=12),
        numbers("measured\nms", lambda row: row.measured.value, figure),
        numbers("from\nto", span),
        *_by_estimate(
            _estimates(validation), "{}\nms", lambda row, name: row.estimated_ms[name], figure
        ),
        numbers("links\nmodelled", "modelled_ms", figure),
    )


def agreements_table(validations: Sequence[Validation]) -> Table:
    """Return a row for each estimate of each problem."""

    def correlation(row: Agreement) -> Entry:
        span = f"{row.spearman_low:.2f} to {row.spearman_high:.2f}"
        return Entry(f"{row.spearman:.2f} ({span})", row.spearman)

    def apart(row: Agreement) -> Entry | None:
        if row.spearman_apart is None:
            return None
        return Entry(f"{row.spearman_apart:.2f} of {row.apart}", row.spearman_apart)

    def top(row: Agreement) -> Entry:
        if row.is_top:
            return Entry("yes", tone="good")
        return Entry("within noise", tone="soft") if row.is_first else Entry("no", tone="bad")

    return table_of(
        [(one.problem, agreement) for one in validations for agreement in one.agreements],
        *([code("problem", 0)] if len(validations) > 1 else []),
        text("estimate", lambda row: row[1].estimate),
        numbers("rank correlation", lambda row: correlation(row[1])),
        numbers("apart", lambda row: apart(row[1])),
        text("top 1", lambda row: top(row[1])),
        numbers("regret", lambda row: row[1].regret, _off_by),
        numbers("error", lambda row: row[1].error, _off_by),
        numbers("scaled", lambda row: row[1].scaled_error, _off_by),
    )


def summary_table(validations: Sequence[Validation]) -> Table:
    """Return a row for each estimate, over all problems that have this estimate."""
    groups: dict[str, list[Agreement]] = defaultdict(list)
    for validation in validations:
        for agreement in validation.agreements:
            groups[agreement.estimate].append(agreement)

    def mean_apart(group: Sequence[Agreement]) -> float | None:
        known = [row.spearman_apart for row in group if row.spearman_apart is not None]
        return statistics.fmean(known) if known else None

    def mean_error(group: Sequence[Agreement]) -> float:
        return math.expm1(statistics.fmean(math.log1p(row.error) for row in group))

    return table_of(
        groups.values(),
        text("estimate", lambda group: group[0].estimate),
        numbers("problems", len, str),
        numbers("top 1", lambda group: sum(row.is_top for row in group), str),
        numbers("or within noise", lambda group: sum(row.is_first for row in group), str),
        numbers("regret\nmean", lambda group: statistics.fmean(r.regret for r in group), _off_by),
        numbers("regret\nmost", lambda group: max(row.regret for row in group), _off_by),
        numbers("error", mean_error, _off_by),
        numbers("apart", mean_apart, hundredths),
    )


def residuals_table(validation: Validation) -> Table:
    """Return a row per group of ranks, with the factor by which each estimate is off there.

    Ranks are grouped by the kind of table that most of their bytes belong to.
    """
    factors: dict[str, dict[str, float]] = defaultdict(dict)
    ranks: dict[str, int] = {}
    for residual in validation.residuals:
        group = f"{residual.fact} {residual.value}"
        factors[group][residual.estimate] = residual.factor
        ranks[group] = max(ranks.get(group, 0), residual.ranks)
    return table_of(
        factors,
        text("ranks mostly of", str),
        numbers("ranks", ranks.get, str),
        *_by_estimate(
            _estimates(validation), "{}", lambda group, name: factors[group].get(name), hundredths
        ),
    )


def _memory_estimates(validations: Sequence[MemoryValidation]) -> list[str]:
    return list(dict.fromkeys(name for v in validations for name in v.ranks[0].whole.estimated))


def peaks_table(validations: Sequence[MemoryValidation]) -> Table:
    """Return a row per problem: the largest measured peak, and each estimate's errors."""
    names = _memory_estimates(validations)
    return table_of(
        validations,
        code("problem"),
        numbers("ranks", lambda row: len(row.ranks), str),
        numbers("peak\nMiB", lambda row: max(r.whole.measured for r in row.ranks) / _MIB, figure),
        *_by_estimate(names, "{}\nlargest error", lambda row, name: max(row.errors(name)), _off_by),
        *_by_estimate(
            names, "{}\nmean", lambda row, name: statistics.fmean(row.errors(name)), _off_by
        ),
    )


def terms_table(validations: Sequence[MemoryValidation]) -> Table:
    """Return a row per kind of table, optimizer and term: summed MiB, and estimate / measured.

    Terms that are 0 by measurement and by all estimates are left out.
    """
    terms: dict[tuple[str, str, str], list[MeasuredTerm]] = defaultdict(list)
    for rank in (rank for validation in validations for rank in validation.ranks):
        for term in rank.terms:
            if term.measured or any(term.estimated.values()):
                terms[term.group, rank.setting, term.term].append(term)

    def ratio(row: tuple[str, str, str], name: str) -> float | None:
        known = [term for term in terms[row] if name in term.estimated]
        measured = sum(term.measured for term in known)
        return sum(term.estimated[name] for term in known) / measured if measured else None

    return table_of(
        sorted(terms, key=lambda row: row[:2]),
        text("sharding type, kernel", 0),
        text("optimizer", 1),
        text("term", 2),
        numbers("measured\nMiB", lambda row: sum(t.measured for t in terms[row]) / _MIB, figure),
        *_by_estimate(_memory_estimates(validations), "{}\n/ measured", ratio, hundredths),
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
    """Return a row for each purpose of points: their number and the fit's error."""
    return table_of(
        machine.errors,
        text("points", "purpose"),
        numbers("number", "points", str),
        numbers("error", "error", _off_by),
    )


def read_validations(folder: Path) -> list[Validation]:
    """Return the validations that `shardbench validate` wrote to a folder, sorted by file name.

    Files of other kinds or versions are skipped.
    """
    validations = []
    for path in sorted(folder.glob("*.json")):
        try:
            validations.append(checked(read_json(path), Validation, str(path)))
        except UsageError:
            continue
    return validations


def validation_chapter(validations: Sequence[Validation]) -> Section:
    """Return the chapter: tables over all problems, then a section per problem with its plans."""
    together = [
        CaptionedTable(summary_table(validations), _SUMMARY),
        CaptionedTable(agreements_table(validations), _TERMS),
    ]
    sections = [
        Section(
            f"estimate-{number}",
            validation.problem,
            drawings=[draw_validation(validation, f"estimate-{number}")],
            tables=[
                CaptionedTable(decisions_table(validation), "Plans, the fastest first."),
                CaptionedTable(residuals_table(validation), _RESIDUALS),
            ],
            remarks=validation.notes,
        )
        for number, validation in enumerate(validations, start=1)
    ]
    return Section("estimates", "Estimates", _LEAD, tables=together, sections=sections)


def draw_validation(validation: Validation, slug: str = "estimate") -> Drawing:
    """Draw the estimated against the measured milliseconds of plans, on logarithmic axes."""
    measured = [decision.measured for decision in validation.decisions]
    data = pd.DataFrame(
        {
            "plan": [decision.name for decision in validation.decisions],
            "measured ms": [time.value for time in measured],
            "from ms": [time.low for time in measured],
            "to ms": [time.high for time in measured],
        }
    )
    with canvas.style():
        drawn, axes = canvas.new_figure(4.2)
        ends = [time.value for time in measured]
        for place, name in enumerate(_estimates(validation)):
            estimated = [decision.estimated_ms[name] for decision in validation.decisions]
            data[f"{name} ms"] = estimated
            ends += estimated
            marker, colour = _LOOKS[place % len(_LOOKS)]
            axes.plot(data["measured ms"], estimated, marker, color=colour, ms=4.5, label=name)
            axes.hlines(estimated, data["from ms"], data["to ms"], colour, linewidth=0.8)
        low, high = 0.8 * min(ends), 1.25 * max(ends)
        axes.plot([low, high], [low, high], color=GREY, linestyle="--", linewidth=0.8)
        axes.set(xlim=(low, high), ylim=(low, high))
        for axis in (axes.xaxis, axes.yaxis):
            canvas.log_axis(axis)
        axes.set(xlabel="measured, ms of the slowest rank's computing", ylabel="estimated, ms")
        axes.grid(True)
        drawn.legend(loc="outside upper left", ncols=3)
        caption = (
            f"`{validation.problem}` on {validation.device}: a point for each plan, with the 99 % "
            "interval of its measurement. On the dashed line an estimate is right."
        )
        return canvas.finish(drawn, slug, "Estimated and measured", caption, data)

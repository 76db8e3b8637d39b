"""The outcome of `shardbench validate` and of `shardbench calibrate`."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.abilities.validation import FittedMachine
from harness.estimates.statistics import Agreement
from harness.estimates.validation import Validation
from reports.core.terminal import as_terminal
from reports.estimates.table import (
    agreements_table,
    decisions_table,
    errors_table,
    figures_table,
    off_by,
    residuals_table,
    summary_table,
)


def shown(found: Validation) -> RenderableType:
    """Show what was found: the plans, and how far each estimate agrees with the measurements."""
    return Group(
        Text(found.problem, style="bold"),
        Text(f"{found.device}, indices {found.inputs}, {found.measured_s:.0f} s of timing"),
        *(Text(note) for note in found.notes),
        "",
        as_terminal(decisions_table(found)),
        "",
        as_terminal(agreements_table([found])),
        "",
        as_terminal(residuals_table(found), "Factors by which the estimates are off\n"),
        "",
        *(Text(sentence) for sentence in sentences(found)),
    )


def sentences(found: Validation) -> Iterator[str]:
    """Yield what an estimate is worth, a sentence for each."""
    for each in found.agreements:
        yield _sentence(each)
    yield "What goes over links is modelled: it is in neither estimate nor measurement here."


def _sentence(each: Agreement) -> str:
    picks = (
        "picks the fastest plan"
        if each.is_top
        else f"picks a plan that cannot be told from the fastest ({each.regret:+.1%})"
        if each.is_top_within_noise
        else f"picks a plan {each.regret:.1%} slower than the fastest"
    )
    return (
        f"{each.estimate}: {picks}; off by {off_by(each.error)}, or {off_by(each.scaled_error)} "
        "but for one factor."
    )


def series_shown(found: Sequence[Validation]) -> RenderableType:
    """Show what several problems say together, each of which was shown before."""
    return as_terminal(summary_table(found), f"{len(found)} problems\n")


def calibration_shown(machine: FittedMachine) -> RenderableType:
    """Show the figures that were fitted, and how far they are off on other sizes."""
    return Group(
        as_terminal(figures_table(machine), "Fitted, with 95 % intervals\n"),
        "",
        as_terminal(errors_table(machine), "Geometric mean error\n"),
    )

"""The outcomes of `shardbench validate` and `shardbench calibrate` on a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.abilities.estimates import FittedMachine
from harness.estimates.validation import Validation
from reports.core.terminal import as_terminal
from reports.estimates.table import (
    agreements_table,
    decisions_table,
    errors_table,
    figures_table,
    residuals_table,
    summary_table,
)


def validation_shown(found: Validation) -> RenderableType:
    """Show the plans of one problem, and how far each estimate agrees with the measurements."""
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
        Text("Communication is modelled: it is in neither estimate nor measurement here."),
    )


def series_shown(found: Sequence[Validation]) -> RenderableType:
    """Show the summary of several problems."""
    return as_terminal(summary_table(found), f"{len(found)} problems\n")


def calibration_shown(machine: FittedMachine) -> RenderableType:
    """Show the fitted figures, and their errors on other sizes."""
    return Group(
        as_terminal(figures_table(machine), "Fitted, with 95 % intervals\n"),
        "",
        as_terminal(errors_table(machine), "Geometric mean error\n"),
    )

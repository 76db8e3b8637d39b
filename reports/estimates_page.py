"""The report's chapter and figures that compare estimates of plans with measurements."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness.estimates.validation import Validation
from harness.model.declared import checked
from harness.model.errors import UsageError
from harness.model.files import read_json
from reports import estimates as tables
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, ORANGE, VERMILION, Drawing
from reports.core.formatting import plural
from reports.core.page import CaptionedTable, Finding, Section

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


def read_validations(folder: Path) -> list[Validation]:
    """Return the validations that `shardbench validate` wrote to a folder, sorted by file name.

    Files of other kinds or versions are skipped.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(checked(read_json(path), Validation, str(path)))
        except UsageError:
            continue
    return found


def validation_chapter(found: Sequence[Validation]) -> Section:
    """Return the chapter: tables over all problems, then a section per problem with its plans."""
    together = [
        CaptionedTable(tables.summary_table(found), _SUMMARY),
        CaptionedTable(tables.agreements_table(found), _TERMS),
    ]
    sections = [
        Section(
            f"estimate-{number}",
            one.problem,
            drawings=[draw_validation(one, f"estimate-{number}")],
            tables=[
                CaptionedTable(tables.decisions_table(one), "Plans, the fastest first."),
                CaptionedTable(tables.residuals_table(one), _RESIDUALS),
            ],
            remarks=one.notes,
        )
        for number, one in enumerate(found, start=1)
    ]
    told = [Finding("estimates", sentence) for sentence in filter(None, [_calibrated(found)])]
    return Section("estimates", "Estimates", _LEAD, told, tables=together, sections=sections)


def draw_validation(found: Validation, slug: str = "estimate") -> Drawing:
    """Draw the estimated against the measured milliseconds of plans, on logarithmic axes."""
    measured = [decision.measured for decision in found.decisions]
    data = pd.DataFrame(
        {
            "plan": [decision.name for decision in found.decisions],
            "measured ms": [time.value for time in measured],
            "from ms": [time.low for time in measured],
            "to ms": [time.high for time in measured],
        }
    )
    with canvas.style():
        figure, axes = canvas.new_figure(4.2)
        ends = [time.value for time in measured]
        for place, agreement in enumerate(found.agreements):
            name = agreement.estimate
            estimated = [decision.estimated_ms[name] for decision in found.decisions]
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
        figure.legend(loc="outside upper left", ncols=3)
        caption = (
            f"`{found.problem}` on {found.device}: a point for each plan, with the 99 % interval "
            "of its measurement. On the dashed line an estimate is right."
        )
        return canvas.finish(figure, slug, "Estimated and measured", caption, data)


def _calibrated(found: Sequence[Validation]) -> str:
    """Return a sentence on the plans that the first and the last estimate pick; "" if only one."""
    both = [(one.agreements[0], one.agreements[-1]) for one in found if len(one.agreements) > 1]
    if not both:
        return ""
    before, after = (statistics.fmean(pair[end].regret for pair in both) for end in (0, 1))
    faster = sum(first.regret > last.regret for first, last in both)
    slower = sum(first.regret < last.regret for first, last in both)
    return (
        f"On average the plan chosen by '{both[0][0].estimate}' is {before:.1%} slower than the "
        f"fastest, and the plan chosen by '{both[0][1].estimate}' {after:.1%}: faster on {faster} "
        f"of {plural(len(both), 'problem')}, slower on {slower}."
    )

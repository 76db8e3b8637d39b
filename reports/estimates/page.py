"""The chapter of a report on what estimates are worth: plans measured on this machine."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.estimates.validation import Validation
from harness.model.declared import checked
from harness.model.errors import UsageError
from harness.model.files import read_json
from reports.core.finding import Finding
from reports.core.formatting import plural
from reports.core.page import CaptionedTable, PageChapter, PageSection
from reports.estimates.figure import draw_validation
from reports.estimates.table import (
    agreements_table,
    decisions_table,
    residuals_table,
    summary_table,
)

_LEAD = (
    "What a plan's ranks compute, with fbgemm's own kernels one rank after the other, against what "
    "is estimated of it. What goes over links is modelled, and in neither. Milliseconds are ratios "
    "to a reference timed right beside, times its median: compare them within one problem only."
)


def read_validations(folder: Path) -> list[Validation]:
    """Return what `shardbench validate` left in a folder, by name of file."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(checked(read_json(path), Validation, str(path)))
        except UsageError:
            continue  # of another version, or no such file
    return found


def validation_chapter(found: Sequence[Validation]) -> PageChapter:
    """Return the chapter: all problems in one table, then each with its figure and its plans."""
    sections = [
        PageSection(
            "estimates-worth",
            "What the estimates are worth",
            tables=[
                CaptionedTable(summary_table(found), _SUMMARY),
                CaptionedTable(agreements_table(found), _TERMS),
            ],
        )
    ]
    for number, one in enumerate(found):
        slug = f"estimate-{number + 1}"
        sections.append(
            PageSection(
                slug,
                one.problem,
                drawings=[draw_validation(one, slug)],
                tables=[
                    CaptionedTable(decisions_table(one), "Plans, the fastest first."),
                    CaptionedTable(
                        residuals_table(one),
                        "Factors by which estimates are off, by what most of a rank's bytes are "
                        "of; the factor that all have in common is taken out.",
                    ),
                ],
                remarks=[*one.notes],
            )
        )
    return PageChapter("estimates", "Estimates", sections, _LEAD, findings=findings(found))


_SUMMARY = (
    "All problems together. Top 1: how often the plan that an estimate picks is the fastest when "
    "measured, or cannot be told from it; error: the geometric mean over problems; apart: mean "
    "rank correlation of plans that can be told apart."
)
_TERMS = (
    "Rank correlation: Spearman's, with its 95 % interval; apart: of plans whose intervals do not "
    "overlap alone, and how many those are; regret: how much slower the plan is that the estimate "
    "picks than the fastest one; error: geometric mean of the factor by which it is off; scaled: "
    "the same after one factor for all plans."
)


def _before_and_after(found: Sequence[Validation]) -> Iterator[Finding]:
    """Yield whether planning with a calibrated machine gives faster plans, where both are known."""
    both = [(one.agreements[0], one.agreements[-1]) for one in found if len(one.agreements) > 1]
    if not both:
        return
    before, after = (statistics.fmean(pair[end].regret for pair in both) for end in (0, 1))
    faster, slower = (
        sum(sign * pair[0].regret > sign * pair[1].regret for pair in both) for sign in (1, -1)
    )
    yield Finding(
        "estimates",
        f"On average the plan that '{both[0][0].estimate}' picks is {before:.1%} slower than the "
        f"fastest, that of '{both[0][1].estimate}' {after:.1%}: after calibrating the pick is "
        f"faster when measured on {faster} of {plural(len(both), 'problem')}, slower on {slower}.",
    )


def findings(found: Sequence[Validation]) -> list[Finding]:
    """Return what each estimate is worth over all problems."""
    names = dict.fromkeys(each.estimate for one in found for each in one.agreements)
    told = [*_before_and_after(found)]
    for name in names:
        mine = [each for one in found for each in one.agreements if each.estimate == name]
        top = sum(each.is_first for each in mine)
        regret = max(each.regret for each in mine)
        told.append(
            Finding(
                "estimates",
                f"By '{name}', the plan that is picked is the fastest, or cannot be told from it, "
                f"on {top} of {plural(len(mine), 'problem')}; the most that trusting it costs is "
                f"{regret:.1%}.",
            )
        )
    return told

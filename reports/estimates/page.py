"""The report's chapter that compares estimates of plans with measurements."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.estimates.validation import Validation
from harness.model.declared import checked
from harness.model.errors import UsageError
from harness.model.files import read_json
from reports.core.formatting import plural
from reports.core.page import CaptionedTable, Finding, PageChapter, PageSection
from reports.estimates import table as tables
from reports.estimates.figure import draw_validation

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


def validation_chapter(found: Sequence[Validation]) -> PageChapter:
    """Return the chapter: tables over all problems, then a section per problem with its plans."""
    sections = [
        PageSection(
            "estimates-worth",
            "How good the estimates are",
            tables=[
                CaptionedTable(tables.summary_table(found), _SUMMARY),
                CaptionedTable(tables.agreements_table(found), _TERMS),
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
                    CaptionedTable(tables.decisions_table(one), "Plans, the fastest first."),
                    CaptionedTable(
                        tables.residuals_table(one),
                        "Factors by which estimates are off, by the kind of table that most of a "
                        "rank's bytes belong to; their common factor is taken out.",
                    ),
                ],
                remarks=[*one.notes],
            )
        )
    return PageChapter("estimates", "Estimates", sections, _LEAD, findings=findings(found))


def _before_and_after(found: Sequence[Validation]) -> Iterator[Finding]:
    """Yield a finding on whether calibration leads to faster plans, if both estimates are known."""
    both = [(one.agreements[0], one.agreements[-1]) for one in found if len(one.agreements) > 1]
    if not both:
        return
    before, after = (statistics.fmean(pair[end].regret for pair in both) for end in (0, 1))
    faster = sum(first.regret > last.regret for first, last in both)
    slower = sum(first.regret < last.regret for first, last in both)
    yield Finding(
        "estimates",
        f"On average the plan chosen by '{both[0][0].estimate}' is {before:.1%} slower than the "
        f"fastest, and the plan chosen by '{both[0][1].estimate}' {after:.1%}. Calibration makes "
        f"the chosen plan faster on {faster} of {plural(len(both), 'problem')} and slower on "
        f"{slower}.",
    )


def findings(found: Sequence[Validation]) -> list[Finding]:
    """Return findings on the quality of the plans that each estimate picks, over all problems."""
    sentences = [*_before_and_after(found)]
    for name, group in tables.by_estimate(found).items():
        top = sum(agreement.is_first for agreement in group)
        regret = max(agreement.regret for agreement in group)
        sentences.append(
            Finding(
                "estimates",
                f"The plan chosen by '{name}' is the fastest within the intervals on {top} of "
                f"{plural(len(group), 'problem')}, and at most {regret:.1%} slower on the others.",
            )
        )
    return sentences

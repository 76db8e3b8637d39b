"""The findings on a family, the most important kinds first, and on a whole results file."""

from collections.abc import Iterable, Iterator

from reports.core.frames import Results
from reports.core.page import Finding
from reports.family.data import FamilyView, environments
from reports.family.measured_findings import effects
from reports.family.shortfalls import goals, repetition, shortfalls
from reports.report.gains import gains

KINDS = (
    *("gain", "better decision", "published", "record", "goals", "different decisions", "failed"),
    *("repeated work", "phases", "quality", "over budget", "growth", "inconclusive"),
    *("not installed", "file"),
)


def family_findings(family: FamilyView, others: Iterable[Finding] = ()) -> list[Finding]:
    """Return a family's findings and `others` on it: the first of each kind, then the rest."""
    tellers = (gains, effects, goals, repetition, shortfalls)
    found = [*(finding for tell in tellers for finding in tell(family)), *others]
    found.sort(key=lambda finding: KINDS.index(finding.kind))
    firsts = {finding.kind: finding for finding in reversed(found)}
    return sorted(found, key=lambda finding: finding is not firsts[finding.kind])


def file_findings(results: Results) -> Iterator[Finding]:
    """Yield the findings on a results file as a whole."""
    held = environments(results)
    if len(held) > 1:
        yield Finding(
            "file",
            f"The cells were measured in {len(held)} different environments.",
            "Each ratio is from one run and is valid; times of different runs cannot be compared.",
        )
    yield from (Finding("file", note) for note in results.notes)

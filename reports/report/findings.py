"""All findings on results, the most important kinds first."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reports.core.frames import Results
from reports.core.page import Finding
from reports.family.data import FamilyView, environments, families
from reports.family.measured_findings import effects
from reports.family.shortfalls import goals, repetition, shortfalls

KINDS = (
    *("verdict", "record", "goals", "different decisions", "failed", "repeated work", "phases"),
    *("quality", "over budget", "growth", "inconclusive", "not installed", "file"),
)


def findings(results: Results) -> list[Finding]:
    """Return all findings; the first one is the verdict on the first family."""
    found = [finding for family in families(results) for finding in family_findings(family)]
    return by_importance([*found, *file_findings(results)])


def by_importance(found: Iterable[Finding]) -> list[Finding]:
    """Return findings with the most important kinds first."""
    return sorted(found, key=_importance)


def family_findings(family: FamilyView) -> list[Finding]:
    """Return a family's findings: the first of each kind, then all others."""
    found = [
        replace(finding, family=family.name)
        for tell in (effects, goals, repetition, shortfalls)
        for finding in tell(family)
    ]
    found.sort(key=_importance)
    firsts = {finding.kind: finding for finding in reversed(found)}
    return sorted(found, key=lambda finding: finding is not firsts[finding.kind])


def _importance(finding: Finding) -> int:
    return KINDS.index(finding.kind)


def file_findings(results: Results) -> Iterator[Finding]:
    """Yield the findings on a results file as a whole."""
    held = environments(results)
    if len(held) > 1:
        yield Finding(
            "file",
            f"The cells were measured in {len(held)} different environments.",
            "Ratios stand, each taken within one run; times cannot be set side by side.",
        )
    yield from (Finding("file", note) for note in results.notes)

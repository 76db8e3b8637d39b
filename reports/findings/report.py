"""All that results say, in sentences with numbers, the most important first."""

from collections.abc import Iterator
from dataclasses import replace

from reports.findings.finding import Finding
from reports.findings.measured import effects
from reports.findings.shortfalls import goals, repetition, shortfalls
from reports.frames import Results
from reports.views.family import environments, families

KINDS = (
    *("verdict", "goals", "different decisions", "failed", "repeated work", "phases"),
    *("quality", "over budget", "growth", "inconclusive", "not installed", "file"),
)


def findings(results: Results) -> list[Finding]:
    """Return what the results say; the first one is the verdict on the first family."""
    found = [
        replace(finding, family=family.name)
        for family in families(results)
        for tell in (effects, goals, repetition, shortfalls)
        for finding in tell(family)
    ]
    return sorted([*found, *_file(results)], key=lambda finding: KINDS.index(finding.kind))


def _file(results: Results) -> Iterator[Finding]:
    held = environments(results)
    if len(held) > 1:
        yield Finding(
            "file",
            f"The cells were measured in {len(held)} different environments.",
            "Ratios stand, each taken within one run; times cannot be set side by side.",
        )
    yield from (Finding("file", note) for note in results.notes)

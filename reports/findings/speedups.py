"""Sentences on variants that are compared with another than the reference."""

from collections.abc import Iterator
from typing import Any

from reports.findings.finding import Finding
from reports.findings.measured import effect
from reports.formatting import listing, number
from reports.views.family import FamilyView, rows_of
from reports.views.variants import speedups

_WHOSE = {"same": " with the same decision", "own": " with a decision of its own"}


def speedup_findings(family: FamilyView) -> Iterator[Finding]:
    """Say for each variant that others are compared with how they do on the largest problem."""
    table = speedups(family)
    sizes = family.cells.groupby("problem")["size"].max().fillna(0.0)
    for name, group in table.groupby("against", sort=False):
        group = group[(group["variant"] != name) & group["times_as_fast"].notna()]
        if group.empty:
            continue
        problem = max(group["problem"].unique(), key=lambda each: sizes[each])
        fastest = group[group["problem"] == problem].sort_values("times_as_fast", ascending=False)
        shown = [
            row
            for decision in ("same", "own", "")
            for row in rows_of(fastest[fastest["decision"] == decision].head(1))
        ]
        if shown:
            told = listing([_told(row, str(name)) for row in shown])
            detail = "No verdict stands on a projection." if shown[0]["projected"] else ""
            yield Finding("verdict", f"On `{problem}`, {told}.", detail)


def _told(row: dict[str, Any], name: str) -> str:
    if row["projected"]:
        factor = number(row["times_as_fast"])
        told = f"is projected to be at least {factor} times as fast as `{name}`"
    else:
        told = effect({"outcome": row["outcome"], "ratio": 1 / row["times_as_fast"]}, name)
    return f"`{row['variant']}` {told}{_WHOSE.get(row['decision'], '')}"

"""Sentences on work that is done more often than is enough, by counters alone."""

from collections.abc import Iterator

from reports.findings.finding import Finding
from reports.formatting import count, listing, names
from reports.views.family import FamilyView, rows_of


def repetition(family: FamilyView) -> Iterator[Finding]:
    """Say in one line for each counter who goes beyond what is enough, where most variants do."""
    counters = family.counters.assign(excess=family.counters["value"] - family.counters["enough"])
    for name, beyond in counters[counters["excess"] > 0].groupby("name", sort=False):
        excess = beyond.groupby("problem", sort=False)["excess"].agg(["count", "max"])
        problem = excess.sort_values(["count", "max"], kind="stable").index[-1]
        there = counters[(counters["name"] == name) & (counters["problem"] == problem)]
        is_over = there["excess"] > 0
        over = there[is_over].sort_values("value", ascending=False, kind="stable")
        told = [f"{count(row['value'])} in `{row['variant']}`" for row in rows_of(over)]
        detail = f"Counted on `{problem}`: {str(over['meaning'].iloc[0]).rstrip('.')}"
        fine = there["variant"][~is_over]
        if len(fine):
            do = "does" if len(fine) == 1 else "do"
            detail += f"; {names(fine)} {do} with no more than is enough"
        yield Finding(
            "repeated work",
            f"`{name}`: {listing(told)}, where {count(over['enough'].max())} is enough.",
            f"{detail}.",
        )

"""Work that is done more often than is enough, told by counters alone."""

from collections.abc import Iterator

import pandas as pd

from reports.findings.measured import Finding
from reports.formatting import count, listing
from reports.views.family import FamilyView, rows_of

_MOST_NAMES = 4


def repetition(family: FamilyView) -> Iterator[Finding]:
    """Say in one line for each counter who goes beyond what is enough, where most variants do."""
    counters = family.counters
    beyond = counters[counters["value"] > counters["enough"]]
    for name, over in beyond.groupby("name", sort=False):
        excess = over.assign(excess=over["value"] - over["enough"]).groupby("problem", sort=False)
        ranked = excess["excess"].agg(["count", "max"]).sort_values(["count", "max"], kind="stable")
        problem = str(ranked.index[-1])
        there = counters[(counters["name"] == name) & (counters["problem"] == problem)]
        yield _finding(family, str(name), problem, there)


def _finding(family: FamilyView, name: str, problem: str, there: pd.DataFrame) -> Finding:
    is_over = there["value"] > there["enough"]
    over = there[is_over].sort_values("value", ascending=False, kind="stable")
    enough = over["enough"].max()
    told = [f"{count(row['value'])} in `{row['variant']}`" for row in rows_of(over)]
    fine = [f"`{row['variant']}`" for row in rows_of(there[~is_over])]
    meaning = str(over["meaning"].iloc[0]).rstrip(".")
    detail = f"Counted on `{problem}`: {meaning}"
    if fine:
        verb = "does" if len(fine) == 1 else "do"
        detail += f"; {listing(fine, most=_MOST_NAMES)} {verb} with no more than is enough"
    return Finding(
        "repeated work",
        family.name,
        f"`{name}`: {listing(told, most=_MOST_NAMES)}, where {count(enough)} is enough.",
        f"{detail}.",
    )

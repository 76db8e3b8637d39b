"""What the results do not hold, in sentences: different decisions, failures, calls cut short."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from reports.findings.measured import Finding
from reports.formatting import count, listing, plural, seconds
from reports.frames import DIFFERENT
from reports.views.family import FamilyView, rows_of

_REASON_LENGTH = 160


def shortfalls(family: FamilyView) -> Iterator[Finding]:
    """Say what of a family is not to be compared, and why."""
    for tell in (_different, _failed, _over_budget, _inconclusive, _not_installed):
        yield from tell(family)


def _different(family: FamilyView) -> Iterator[Finding]:
    differing = family.cells[family.cells["outcome"] == DIFFERENT]
    for variant, cells in differing.groupby("variant", sort=False):
        target = cells["same_as"].iloc[0] or cells["against"].iloc[0]
        yield Finding(
            "different decisions",
            family.name,
            f"`{variant}` decides differently from `{target}`, which it must reproduce, on "
            f"{plural(len(cells), 'problem')}.",
            f"Its times there are compared with nothing: {_problems(cells)}.",
        )


def _failed(family: FamilyView) -> Iterator[Finding]:
    for variant, cells in _with_status(family, "failed"):
        reason = " ".join(str(cells["reason"].iloc[0]).split())
        if len(reason) > _REASON_LENGTH:
            reason = reason[:_REASON_LENGTH] + "…"
        yield Finding(
            "failed",
            family.name,
            f"`{variant}` failed on {plural(len(cells), 'problem')}.",
            f"On {_problems(cells)}" + (f": {reason}" if reason else "."),
        )


def _over_budget(family: FamilyView) -> Iterator[Finding]:
    for variant, cells in _with_status(family, "over budget"):
        stops = [f"`{row['problem']}`{progress(row)}" for row in rows_of(cells)]
        yield Finding(
            "over budget",
            family.name,
            f"`{variant}` was over budget on {plural(len(cells), 'problem')}.",
            f"It was stopped on {listing(stops, most=3)}.",
        )


def _inconclusive(family: FamilyView) -> Iterator[Finding]:
    unclear = family.cells[family.cells["outcome"] == "inconclusive"]
    if len(unclear):
        names = [f"`{name}`" for name in unclear["variant"].unique()]
        compared = int(family.cells["ratio"].notna().sum())
        yield Finding(
            "inconclusive",
            family.name,
            f"{len(unclear)} of {plural(compared, 'comparison')} stayed inconclusive.",
            f"{'It is' if len(unclear) == 1 else 'They are'} of {listing(names)}: the interval "
            "neither clears the noise floor nor stays within it.",
        )


def _not_installed(family: FamilyView) -> Iterator[Finding]:
    missing = [f"`{variant}`" for variant, _ in _with_status(family, "not installed")]
    if missing:
        yield Finding(
            "not installed",
            family.name,
            f"Not installed here, and so not measured: {listing(missing)}.",
        )


def progress(cell: Mapping[str, Any]) -> str:
    """Say in brackets how far an over-budget cell came, and what that projects; "" if unknown."""
    parts = []
    if cell["progress_done"] >= 0:
        total = f" of {count(cell['progress_total'])}" if cell["progress_total"] > 0 else ""
        done = f"{count(cell['progress_done'])}{total} {cell['progress_unit']}".rstrip()
        after = cell["progress_elapsed_s"]
        parts.append(done + (f" after {seconds(after, trim=True)}" if after > 0 else ""))
    if cell["projection_s"] > 0:
        parts.append(f"projection, not measured: {seconds(cell['projection_s'])}")
    return f" ({'; '.join(parts)})" if parts else ""


def _with_status(family: FamilyView, status: str) -> Iterator[tuple[str, pd.DataFrame]]:
    for variant, cells in family.cells[family.cells["status"] == status].groupby(
        "variant", sort=False
    ):
        yield str(variant), cells


def _problems(cells: pd.DataFrame) -> str:
    return listing([f"`{problem}`" for problem in cells["problem"]], most=3)

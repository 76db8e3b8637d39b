"""Speed-ups over another variant than the reference, as figure and tables."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from reports.core.formatting import number
from reports.family.data import FamilyView, ratios, rows_of

_SPEEDUPS = [
    *("problem", "against", "variant", "cpu_s", "times_as_fast", "low", "high", "projected"),
    *("outcome", "decision", "quality", "bound", "gap"),
]


def speedups(family: FamilyView) -> pd.DataFrame:
    """Return speed-ups on the problems with another variant than the reference as baseline.

    A row per cell of such problems. `low` and `high` are the interval of `times_as_fast`. If the
    baseline (`against`) was stopped, `times_as_fast` is from its projection, without interval, and
    `projected` is true.
    """
    cells = family.cells[family.cells["against"] != family.reference]
    stopped = cells[(cells["variant"] == cells["against"]) & (cells["status"] == "over budget")]
    # An empty column has the type of texts, which cannot be divided.
    projection = cells["problem"].map(stopped.set_index("problem")["projection_s"]).astype(float)
    projected = (projection / cells["wall_s"]).where(
        (cells["status"] == "ok") & (projection > 0) & (cells["wall_s"] > 0)
    )
    best = family.primary_qualities.set_index("cell")["value"]
    table = cells.assign(
        times_as_fast=projected.fillna(1 / ratios(cells)),
        low=1 / cells["ratio_high"],
        high=1 / cells["ratio_low"],
        projected=projected.notna(),
        decision=[family.whose_decision(row) for row in rows_of(cells)],
        quality=cells["cell"].map(best).astype(float),
    )
    places = {problem: place for place, problem in enumerate(family.against)}
    table = table.sort_values("problem", key=lambda names: names.map(places), kind="stable")
    return table[_SPEEDUPS].reset_index(drop=True)


def factor(row: Mapping[str, Any]) -> str:
    """Write the speed-up in a row of `speedups`, marked if it is projected."""
    text = number(row["times_as_fast"])
    return f"≥ {text} (projected)" if row["projected"] else text

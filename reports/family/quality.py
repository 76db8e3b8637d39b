"""Planning time against the quality of decisions, as figure and tables."""

import pandas as pd

from reports.core.frames import DIFFERENT
from reports.family.data import FamilyView, ratios, rows_of

_TRADEOFF = [
    *("variant", "cpu_s", "ratio", "decision", "quality", "bound", "gap"),
    *("name", "unit", "better"),
]


def tradeoff(family: FamilyView) -> pd.DataFrame:
    """Return time and first quality on `quality_problem`: a row per variant that has both.

    Variants that fail to make a required decision are left out: their times are not comparable.
    """
    cells = family.cells[family.cells["problem"] == family.quality_problem]
    cells = cells[(cells["cpu_s"] > 0) & (cells["outcome"] != DIFFERENT)]
    best = family.primary_qualities[["cell", "value", "name", "unit", "better"]]
    table = cells.merge(best.rename(columns={"value": "quality"}), on="cell")
    decisions = [family.whose_decision(row) for row in rows_of(table)]
    return table.assign(ratio=ratios(table), decision=decisions)[_TRADEOFF]

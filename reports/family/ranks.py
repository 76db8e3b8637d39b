"""Plans beside each other, rank by rank: the reference's, and the best one that is another."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.model.cell import RankTable
from reports.family.data import FamilyView, rows_of

_COLUMNS = ["variant", "rank", "figure", "value", "capacity", "is_bar"]


@dataclass(frozen=True, slots=True)
class RankView:
    """One or two plans on a problem, the reference's first.

    `figures` has a row for each variant, rank and figure of `RankTable`, with `capacity` NaN where
    there is no limit; `is_bar` marks the figure by which ranks are heavy or light.
    """

    problem: str
    variants: tuple[str, ...]
    figures: pd.DataFrame

    def of(self, variant: str, figure: str) -> pd.DataFrame:
        """Return a plan's rows of one figure, in the order of the ranks."""
        held = self.figures
        return held[(held["variant"] == variant) & (held["figure"] == figure)]

    @property
    def names(self) -> list[str]:
        """The figures that some rank has any of, the one that ranks are heavy by first."""
        used = self.figures.groupby("figure", sort=False)["value"].max() != 0
        bars = set(self.figures["figure"][self.figures["is_bar"]])
        return sorted((str(name) for name in used.index[used]), key=lambda name: name not in bars)


def ranks(family: FamilyView) -> RankView | None:
    """Return what each rank gets on the problem of the qualities, or on the largest one told of.

    The plans are that of the variant compared with and the best one that is another; one of them
    alone where there is no other. None where no plan says what its ranks get.
    """
    told = {str(each.id): each.ranks for each in family.records if each.ranks and each.ranks.rows}
    cells = family.cells[family.cells["cell"].isin(list(told))]
    if cells.empty:
        return None
    problem = family.quality_problem
    if problem not in set(cells["problem"]):
        largest = cells.sort_values(["size", "gpus"], ascending=False, kind="stable")
        problem = str(largest["problem"].iloc[0])
    plans = _two_plans(family, rows_of(cells[cells["problem"] == problem]))
    figures = [_figures(plan["variant"], told[plan["cell"]]) for plan in plans]
    return RankView(problem, tuple(plan["variant"] for plan in plans), pd.concat(figures))


def _two_plans(family: FamilyView, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    against = family.against[str(cells[0]["problem"])]
    first = next((cell for cell in cells if cell["variant"] == against), cells[0])
    quality = family.primary_qualities.set_index("cell")
    others = [
        cell
        for cell in cells
        if cell["fingerprint"] != first["fingerprint"] and cell["cell"] in quality.index
    ]
    if not others:
        return [first]
    higher = str(quality["better"].iloc[0]) == "higher"
    others.sort(key=lambda cell: float(quality["value"][cell["cell"]]), reverse=higher)
    return [first, others[0]]


def _figures(variant: str, told: RankTable) -> pd.DataFrame:
    held = pd.DataFrame(told.rows, columns=told.columns, dtype=float).reset_index(names="rank")
    held = held.melt("rank", var_name="figure").assign(variant=variant)
    capacities = dict(zip(told.columns, told.capacities, strict=True))
    capacity = held["figure"].map(capacities).astype(float)
    return held.assign(capacity=capacity, is_bar=held["figure"] == told.bar)[_COLUMNS]

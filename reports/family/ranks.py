"""The load of each rank under two plans: the reference's plan, and the best different plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.model.cell import RankTable
from reports.core.formatting import count, percent
from reports.core.table import Table, TableColumn, code, numbers, table_of, text
from reports.family.data import FamilyView, rows_of

_COLUMNS = ["variant", "rank", "figure", "value", "capacity", "is_bar"]
_MOST_BARS = 128
_AT_EACH_END = 8
_MOST_STEPS = 400
_LONGEST_NAME = 34


@dataclass(frozen=True, slots=True)
class RankView:
    """The ranks' loads under one or two plans on a problem, first the variant compared with.

    `figures` has a row for each variant, rank and figure of `RankTable`. `capacity` is NaN without
    a limit; `is_bar` marks the figure that measures how heavy a rank's load is.
    """

    problem: str
    variants: tuple[str, ...]
    figures: pd.DataFrame

    def of(self, variant: str, figure: str) -> pd.DataFrame:
        """Return the rows of one variant and one figure, in the order of the ranks."""
        held = self.figures
        return held[(held["variant"] == variant) & (held["figure"] == figure)]

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return int(self.figures["rank"].max()) + 1

    @property
    def names(self) -> list[str]:
        """The figures that are not 0 for all ranks, first the one that measures the load."""
        used = self.figures.groupby("figure", sort=False)["value"].max() != 0
        bars = set(self.figures["figure"][self.figures["is_bar"]])
        return sorted((str(name) for name in used.index[used]), key=lambda name: name not in bars)


def ranks(family: FamilyView) -> RankView | None:
    """Return the loads of all ranks under two plans: the baseline's, and the best that differs.

    They are on `quality_problem`, or on the largest problem with loads if that has none. Return
    None if no plan has loads.
    """
    loads = {str(cell.id): cell.ranks for cell in family.records if cell.ranks and cell.ranks.rows}
    cells = family.cells[family.cells["cell"].isin(list(loads))]
    if cells.empty:
        return None
    problem = family.quality_problem
    if problem not in set(cells["problem"]):
        largest = cells.sort_values(["size", "gpus"], ascending=False, kind="stable")
        problem = str(largest["problem"].iloc[0])
    plans = _two_plans(family, rows_of(cells[cells["problem"] == problem]))
    figures = [_figures(plan["variant"], loads[plan["cell"]]) for plan in plans]
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


def _figures(variant: str, loads: RankTable) -> pd.DataFrame:
    held = pd.DataFrame(loads.rows, columns=loads.columns, dtype=float).reset_index(names="rank")
    held = held.melt("rank", var_name="figure").assign(variant=variant)
    capacities = dict(zip(loads.columns, loads.capacities, strict=True))
    capacity = held["figure"].map(capacities).astype(float)
    return held.assign(capacity=capacity, is_bar=held["figure"] == loads.bar)[_COLUMNS]


def ranks_table(view: RankView) -> Table:
    """Return a row per rank, with the figures of both plans; of many, the ranks at both ends."""

    def column(name: str, variant: str) -> TableColumn:
        found = view.of(variant, name)
        held = dict(zip(found["rank"], found["value"], strict=True))
        return numbers(f"{name}, {variant}", held.get)

    columns = (column(name, variant) for name in view.names for variant in view.variants)
    return table_of(_shown(view), numbers("rank", lambda rank: rank, count), *columns)


def ranks_caption(view: RankView) -> str:
    """Return the caption of `ranks_table`."""
    if len(_shown(view)) == view.ranks:
        return "Every rank."
    first = view.variants[0]
    return f"The {_AT_EACH_END} heaviest and lightest of {view.ranks:,} ranks under `{first}`."


def _shown(view: RankView) -> Sequence[int]:
    if view.ranks <= _MOST_BARS or not view.names:
        return range(view.ranks)
    load = view.of(view.variants[0], view.names[0]).sort_values("value", ascending=False)["rank"]
    return [*load[:_AT_EACH_END], *load[-_AT_EACH_END:]]


def loads_table(view: RankView) -> Table:
    """Return a row per plan and figure: the heaviest rank, the mean, and the capacity used."""
    rows = [_loads(view, name, variant) for name in view.names for variant in view.variants]
    return table_of(
        rows,
        code("plan of"),
        text("figure"),
        numbers("heaviest"),
        numbers("on rank", write=count),
        numbers("mean"),
        numbers("heaviest over mean"),
        numbers("capacity"),
        numbers("used of it", write=percent),
    )


def _loads(view: RankView, name: str, variant: str) -> Mapping[str, Any]:
    found = view.of(variant, name)
    most, mean = float(found["value"].max()), float(found["value"].mean())
    capacity = float(found["capacity"].max())
    return {
        "plan of": variant,
        "figure": name,
        "heaviest": most,
        "on rank": int(found["value"].to_numpy().argmax()),
        "mean": mean,
        "heaviest over mean": most / mean if mean else None,
        "capacity": capacity,
        "used of it": most / capacity if capacity > 0 else None,
    }

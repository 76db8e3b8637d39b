"""The load of each rank under two plans: the reference's plan, and the best different plan."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.model.cell import Cell
from reports.core import canvas
from reports.core.canvas import BLUE, ORANGE, Drawing
from reports.core.columns import first_quality
from reports.core.formatting import names, number
from reports.family.data import FamilyView

_MOST_STEPS = 400


@dataclass(frozen=True, slots=True)
class Load:
    """A figure of the ranks under a plan, such as GiB, by rank; `capacity` is a rank's limit."""

    variant: str
    figure: str
    values: Sequence[float]
    capacity: float | None

    @property
    def most(self) -> float:
        """The largest value."""
        return max(self.values)

    @property
    def heaviest(self) -> int:
        """The rank with the largest value."""
        return self.values.index(self.most)

    @property
    def mean(self) -> float:
        """The mean over all ranks."""
        return sum(self.values) / len(self.values)


def compared_plans(family: FamilyView) -> list[Cell]:
    """Return the cells with the loads of two plans: the baseline's, and the best that differs.

    They are on `quality_problem`, or on the largest problem with loads if that has none. Without a
    different plan there is one cell, without any loads none.
    """
    cells = [cell for cell in family.records if cell.ranks and cell.ranks.rows]
    if not cells:
        return []
    here = [cell for cell in cells if str(cell.problem) == family.quality_problem]
    if not here:
        largest = max(cells, key=lambda cell: (cell.size or 0.0, cell.problem.gpus))
        here = [cell for cell in cells if cell.problem == largest.problem]
    baseline = next((cell for cell in here if cell.variant == cell.against), here[0])
    rated = [
        (value if cell.qualities[0].better == "lower" else -value, cell)
        for cell in here
        if cell.fingerprint != baseline.fingerprint
        if (value := first_quality(cell)) is not None
    ]
    return [baseline, *(cell for _, cell in sorted(rated, key=lambda pair: pair[0])[:1])]


def loads_of(cells: Sequence[Cell]) -> dict[str, list[Load]]:
    """Return the loads under each plan by figure, first the one that measures the load.

    Figures that are 0 for all ranks are left out.
    """
    tables = {cell.variant: cell.ranks for cell in cells if cell.ranks}
    loads: dict[str, list[Load]] = {}
    for name in dict.fromkeys(n for table in tables.values() for n in (table.bar, *table.columns)):
        for variant, table in tables.items():
            if name in table.columns:
                place = table.columns.index(name)
                values = [row[place] for row in table.rows]
                load = Load(variant, name, values, table.capacities[place])
                loads.setdefault(name, []).append(load)
    return {name: group for name, group in loads.items() if any(any(g.values) for g in group)}


def draw_ranks(family: FamilyView) -> Iterator[Drawing]:
    """Draw the plans side by side: a row of steps per figure, with the capacity as a line."""
    cells = compared_plans(family)
    loads = loads_of(cells)
    if not loads:
        return
    every = [load for group in loads.values() for load in group]
    plans, first = [cell.variant for cell in cells], next(iter(loads))
    figure = canvas.blank_figure(0.9 + 1.75 * len(loads))
    grid = figure.subplots(len(loads), len(plans), sharex="col", sharey="row", squeeze=False)
    group = math.ceil(max(len(load.values) for load in every) / _MOST_STEPS)
    for row, (name, of_plans) in zip(grid, loads.items(), strict=True):
        for load in of_plans:
            axes = row[plans.index(load.variant)]
            starts = range(0, len(load.values), group)
            tops = [max(load.values[start : start + group]) for start in starts]
            edges = [place * group - 0.5 for place in range(len(tops) + 1)]
            axes.stairs(tops, edges, fill=True, color=BLUE, baseline=min(0.0, *load.values))
            axes.plot(load.heaviest, load.most, "v", color=ORANGE, markeredgecolor="black")
            if load.capacity is not None:
                axes.axhline(load.capacity, color="black", linestyle="--", linewidth=1)
            plan = f"{canvas.short(load.variant, 34)}\n" if name == first else ""
            title = f"{plan}most {number(float(load.most))}, mean {number(load.mean)}"
            axes.set_title(title, loc="left")
            axes.grid(axis="y")
        row[0].set_ylabel(canvas.short(name, 34))
    for axes in grid[-1]:
        axes.set_xlabel("rank")
    limit = canvas.key("capacity of a rank", color="black", linestyle="--")
    canvas.legend_above(figure, {"a rank": (BLUE, "s"), "the heaviest": (ORANGE, "v")}, limit)
    caption = f"The plans of {names(plans)} on `{cells[0].problem}`, by the planner's own estimate."
    if group > 1:
        caption += f" A step is the heaviest of {group} neighbours."
    if len(plans) == 1:
        caption += " No variant has a different plan to compare it with."
    rows = [
        (load.variant, rank, load.figure, value, load.capacity)
        for load in every
        for rank, value in enumerate(load.values)
    ]
    data = pd.DataFrame(rows, columns=["variant", "rank", "figure", "value", "capacity"])
    yield canvas.finish(figure, f"{family.slug}-ranks", "The load of each rank", caption, data)

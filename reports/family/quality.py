"""Decisions: quality against time and against what a plan moves, and the load of each rank."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.measuring.statements import gap_of
from harness.model.cell import Cell
from harness.model.quality import Bound, Quality, find_bound
from harness.planning.plan import Planned
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, MARKERS, ORANGE, Drawing
from reports.core.columns import first_quality, median
from reports.core.formatting import gap, names, number
from reports.family.data import FamilyView

_MOST_STEPS = 400


def draw_quality(family: FamilyView) -> Iterator[Drawing]:
    """Draw the first quality against planning time, if variants differ in quality.

    Variants that fail to make a required decision are left out: their times are not comparable.
    """
    rated = [
        (cell, time, value)
        for cell in family.variants_on(family.quality_problem).values()
        if (time := median(cell.cpu_s)) and cell.decision != "different"
        if (value := first_quality(cell)) is not None
    ]
    if len({value for _, _, value in rated}) < 2:
        return
    first, bound = rated[0][0].qualities[0], rated[0][0].bound
    figure, axes = canvas.new_figure(4.0)
    for cell, time, value in rated:
        place = family.variants.index(cell.variant)
        distance = gap_of(cell)
        axes.plot(
            time,
            value,
            marker=MARKERS[place % len(MARKERS)],
            label=cell.variant if math.isnan(distance) else f"{cell.variant} ({gap(distance)})",
            markersize=7,
            color=canvas.colour_of(place),
            linestyle="none",
        )
    caption = (
        f"On `{family.quality_problem}`. Variants with the same decision are at the same height."
    )
    bounds = [c.quality[bound.name] for c, *_ in rated if bound and bound.name in c.quality]
    if bounds:
        strongest = (max if first.better == "lower" else min)(bounds)
        axes.axhline(strongest, color="black", linestyle="--", linewidth=1, label="proven bound")
        caption += " In brackets the gap to the bound, which no decision can pass."
    axes.margins(0.1)
    canvas.log_axis(axes.xaxis, canvas.write_time, canvas.TIMES)
    unit = f" [{first.unit}]" if first.unit else ""
    axes.set(xlabel="planning time (CPU), log scale")
    axes.set_ylabel(f"{first.name}{unit}, {first.better} is better")
    axes.grid(True)
    figure.legend(loc="outside right upper")
    data = family.data_on(family.quality_problem, [cell.variant for cell, *_ in rated])
    data[first.name] = [value for *_, value in rated]
    yield canvas.finish(figure, f"{family.slug}-quality", "Time against quality", caption, data)


def draw_front(plans: Sequence[Planned]) -> Drawing:
    """Draw the plans of `shardbench plan`: their first quality against the GiB that they move."""
    first, bound = plans[0].first, plans[0].bound
    points = [
        (
            f"plan-{place}.json",
            plan.moved_gib,
            plan.quality[first.name],
            plan.quality.get(bound.name if bound else ""),
        )
        for place, plan in enumerate(plans, start=1)
    ]
    with canvas.style():
        return _front("front", first, bound, points, f"`{plans[0].cell}`, from the plan before it.")


def draw_fronts(family: FamilyView) -> Iterator[Drawing]:
    """Draw the front of the largest problem: plans that move some GiB of a measured plan."""
    cells = [cell for cell in family.records if len(cell.front) > 1 and cell.qualities]
    if cells:
        cell = max(cells, key=lambda cell: (cell.size or 0.0, len(cell.front)))
        points = [
            (f"point {place}", point.moved_gib, point.value, point.bound)
            for place, point in enumerate(cell.front, start=1)
        ]
        caption = (
            f"Starting from the plan of `{cell.id}`: the quality of plans that move some of it."
        )
        slug, bound = f"{family.slug}-front", find_bound(cell.qualities)
        yield _front(slug, cell.qualities[0], bound, points, caption)


def _front(
    slug: str,
    first: Quality,
    bound: Bound | None,
    points: Sequence[tuple[str, float | None, float, float | None]],
    caption: str,
) -> Drawing:
    """Draw points of a name, GiB moved, quality and, if all have one, bound."""
    data = pd.DataFrame([row[:3] for row in points], columns=["plan", "GiB moved", first.name])
    figure, axes = canvas.new_figure(3.6)
    moved, values = data["GiB moved"], data[first.name]
    axes.plot(moved, values, "o-", color=BLUE, label="a plan that was found", ms=5)
    bounds = [end for *_, end in points if end is not None]
    if bound and len(bounds) == len(points):
        data[bound.name] = bounds
        data["gap"] = [
            bound.gap({first.name: value, bound.name: end})
            for value, end in zip(values, bounds, strict=True)
        ]
        label = "no plan that moves as much can be below"
        axes.plot(moved, bounds, "_--", color=GREY, label=label, ms=5)
    unit = f" ({first.unit})" if first.unit else ""
    axes.set(xlabel="GiB moved", ylabel=f"{first.name}{unit}")
    if values.max() > 1.2 * values.min():  # else the line would look flat
        axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.grid(True)
    figure.legend(loc="outside upper left", ncols=2)
    return canvas.finish(figure, slug, "Quality against what moves", caption, data)


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

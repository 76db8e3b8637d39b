"""The quality of decisions: against planning time, and against what a plan moves."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from harness.measuring.statements import gap_of
from harness.model.quality import Bound, Quality, find_bound
from harness.planning.plan import Planned
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, MARKERS, Drawing
from reports.core.columns import first_quality, median
from reports.core.formatting import gap
from reports.family.data import FamilyView


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

"""The figure of plans' quality against the GiB of shards to move from the previous plan."""

from collections.abc import Iterator, Sequence

import pandas as pd

from harness.model.quality import Bound, Quality, find_bound
from harness.planning.plan import Planned
from reports.core.drawing import canvas
from reports.core.drawing.canvas import Drawing
from reports.core.formatting import figure as digits
from reports.family.data import FamilyView


def draw_front(plans: Sequence[Planned]) -> Drawing:
    """Draw the plans of `shardbench plan`: their first quality against the GiB that they move."""
    first, bound = plans[0].first, plans[0].bound
    names = [f"plan-{number}.json" for number in range(1, len(plans) + 1)]
    data = pd.DataFrame({"plan": names, "GiB moved": [plan.moved_gib for plan in plans]})
    data[first.name] = [plan.quality[first.name] for plan in plans]
    if bound is not None:
        data[bound.name] = [plan.quality[bound.name] for plan in plans]
        data["gap"] = [bound.gap(plan.quality) for plan in plans]
    with canvas.style():
        return _draw("front", data, first, bound, f"`{plans[0].cell}`, from the plan before it.")


def draw_fronts(family: FamilyView) -> Iterator[Drawing]:
    """Draw the front of the largest problem: plans that move some GiB of a measured plan."""
    held = [cell for cell in family.records if len(cell.front) > 1 and cell.qualities]
    if not held:
        return
    cell = max(held, key=lambda cell: (cell.size or 0.0, len(cell.front)))
    first, bound = cell.qualities[0], find_bound(cell.qualities)
    names = [f"point {number}" for number in range(1, len(cell.front) + 1)]
    data = pd.DataFrame({"plan": names, "GiB moved": [point.moved_gib for point in cell.front]})
    data[first.name] = [point.value for point in cell.front]
    if any(point.bound is None for point in cell.front):
        bound = None
    if bound is not None:
        data[bound.name] = [point.bound for point in cell.front]
    caption = f"Starting from the plan of `{cell.id}`: the quality of plans that move some of it."
    yield _draw(f"{family.slug}-front", data, first, bound, caption)


def _draw(
    name: str, data: pd.DataFrame, first: Quality, bound: Bound | None, caption: str
) -> Drawing:
    """Draw a quality and its bound, if any, against the GiB moved."""
    figure, axes = canvas.new_figure(3.6)
    moved = data["GiB moved"]
    label = "a plan that was found"
    axes.plot(moved, data[first.name], color=canvas.BLUE, marker="o", markersize=5, label=label)
    if bound is not None:
        label = "no plan that moves as much can be below"
        axes.plot(moved, data[bound.name], "_--", color=canvas.GREY, markersize=5, label=label)
    for row in data.to_dict("records"):
        text = f"{digits(row['GiB moved'])} GiB: {digits(row[first.name])} {first.unit}"
        (point,) = axes.plot(row["GiB moved"], row[first.name], color=canvas.BLUE, marker="o")
        canvas.mark(point, f"{row['plan']}, {text}")
    unit = f" ({first.unit})" if first.unit else ""
    axes.set(xlabel="GiB moved", ylabel=f"{first.name}{unit}")
    if data[first.name].max() > 1.2 * data[first.name].min():  # else the line would look flat
        axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.grid(True)
    figure.legend(loc="outside upper left", ncols=2)
    return canvas.finish(figure, name, "Quality against what moves", caption, data)

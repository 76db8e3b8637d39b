"""The figure of how good plans are against what they move of the plan before them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from harness.planning.plan import Planned
from reports.figures import canvas
from reports.figures.canvas import Drawing
from reports.formatting import figure as digits


def draw_front(plans: Sequence[Planned]) -> Drawing:
    """Draw a decision's first quality against the GiB that it moves, with its bound."""
    first, bound = plans[0].first, plans[0].bound
    data = pd.DataFrame(
        {
            "plan": [f"plan-{number}.json" for number in range(1, len(plans) + 1)],
            "GiB moved": [plan.moved_gib for plan in plans],
            first.name: [plan.quality[first.name] for plan in plans],
        }
    )
    with canvas.style():
        figure, axes = canvas.new_figure(3.6)
        lines = [(first.name, "o", canvas.BLUE, "-", "a plan that was found")]
        if bound is not None:
            data[bound.name] = [plan.quality[bound.name] for plan in plans]
            data["gap"] = [bound.gap(plan.quality) for plan in plans]
            lines.append(
                (bound.name, "_", canvas.GREY, "--", "no plan that moves as much can be below")
            )
        for name, marker, colour, dashes, label in lines:
            look: dict[str, Any] = {
                "color": colour,
                "marker": marker,
                "linestyle": dashes,
                "markersize": 5,
            }
            axes.plot(data["GiB moved"], data[name], label=label, **look)
        for row in data.to_dict("records"):
            text = f"{digits(row['GiB moved'])} GiB: {digits(row[first.name])} {first.unit}"
            (point,) = axes.plot(row["GiB moved"], row[first.name], color=canvas.BLUE, marker="o")
            canvas.mark(point, f"{row['plan']}, {text}")
        axes.set_xlabel("GiB moved")
        axes.set_ylabel(f"{first.name} ({first.unit})" if first.unit else first.name)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.grid(True)
        figure.legend(loc="outside upper left", ncols=2)
        caption = f"`{plans[0].cell}`, from the plan before it."
        return canvas.finish(figure, "front", "Quality against what moves", caption, data)

"""The figure of estimated against measured times, with a point for each plan and estimate."""

import pandas as pd

from harness.estimates.validation import Validation
from reports.core.drawing import canvas
from reports.core.drawing.canvas import Drawing
from reports.core.formatting import figure as digits

_LOOKS = (("o", canvas.VERMILION), ("s", canvas.ORANGE), ("D", canvas.BLUE))


def draw_validation(found: Validation, slug: str = "estimate") -> Drawing:
    """Draw the estimated against the measured milliseconds of plans, on logarithmic axes."""
    data = pd.DataFrame(
        {
            "plan": [decision.name for decision in found.decisions],
            "measured ms": [decision.measured.value for decision in found.decisions],
            "from ms": [decision.measured.low for decision in found.decisions],
            "to ms": [decision.measured.high for decision in found.decisions],
        }
    )
    for one in found.agreements:
        name = one.estimate
        data[f"{name} ms"] = [decision.estimated_ms[name] for decision in found.decisions]
    with canvas.style():
        figure, axes = canvas.new_figure(4.2)
        ends = [*data["measured ms"]]
        for series, one in enumerate(found.agreements):
            marker, colour = _LOOKS[series % len(_LOOKS)]
            column = data[f"{one.estimate} ms"]
            ends += [*column]
            axes.plot([], [], marker, color=colour, label=one.estimate)
            for row, estimated in zip(data.to_dict("records"), column, strict=True):
                axes.plot(
                    [row["from ms"], row["to ms"]], [estimated] * 2, color=colour, linewidth=0.8
                )
                (point,) = axes.plot(row["measured ms"], estimated, marker, color=colour, ms=4.5)
                measured = f"{row['plan']}: {digits(row['measured ms'])} ms measured"
                canvas.mark(point, f"{measured}, {digits(estimated)} ms by {one.estimate}")
        low, high = 0.8 * min(ends), 1.25 * max(ends)
        axes.plot([low, high], [low, high], color=canvas.GREY, linestyle="--", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        ticks = [tick for tick in canvas.ROUND_NUMBERS if low <= tick <= high]
        for axis in (axes.xaxis, axes.yaxis):
            canvas.set_ticks(axis, ticks, lambda tick: digits(float(tick)))
        axes.set_xlabel("measured, ms of the slowest rank's computing")
        axes.set_ylabel("estimated, ms")
        axes.grid(True)
        figure.legend(loc="outside upper left", ncols=3)
        caption = (
            f"`{found.problem}` on {found.device}: a point for each plan, with the 99 % interval "
            "of its measurement. On the dashed line an estimate is right."
        )
        return canvas.finish(figure, slug, "Estimated and measured", caption, data)

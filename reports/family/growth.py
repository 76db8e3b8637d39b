"""The growth of planning time with the size of a problem."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scipy.special import stdtrit

from harness.model.cell import Cell
from harness.model.ids import WorkloadSpec
from reports.core import canvas
from reports.core.canvas import GREY, MARKERS, Drawing
from reports.core.columns import median
from reports.core.formatting import count, hundredths, number, seconds, with_interval
from reports.core.table import Table, code, numbers, table_of, text
from reports.family.data import FamilyView

LEAST_SIZES = 5  # of a series that reports show
_LEAST_FITTED = 3
_CONFIDENCE = 0.95


class PowerLaw(NamedTuple):
    """The exponent of time over size, and the ends of its 95 % interval."""

    exponent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """The CPU seconds of a call on a problem of some size.

    If the call passed its budget (`budget_s`), `seconds` is the time `projected` from its progress,
    or of a call that was `stopped` without any progress the budget.
    """

    size: float
    seconds: float
    kind: Literal["measured", "projected", "stopped"] = "measured"
    budget_s: float | None = None


@dataclass(frozen=True)
class Series:
    """The times of a variant on problems that differ only in size, in increasing order.

    `sweep` is what the problems have in common: the workload without its size, the topology, and
    the machine if several measured such problems.
    """

    sweep: str
    size_name: str
    variant: str
    points: tuple[Point, ...]

    @cached_property
    def measured(self) -> list[Point]:
        """The points of calls that ended."""
        return [point for point in self.points if point.kind == "measured"]

    @cached_property
    def fit(self) -> PowerLaw | None:
        """The power law of the measured points, not of projections; None with fewer than three."""
        measured = self.measured
        return fit_exponent([p.size for p in measured], [p.seconds for p in measured])


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> PowerLaw | None:
    """Fit a power law to times in seconds by least squares on logarithms.

    The interval is Student's for the slope of a line. Return None with fewer than three different
    sizes, since two points leave no error to estimate, or if a value is not positive.
    """
    if len(set(sizes)) < _LEAST_FITTED or min(*sizes, *seconds) <= 0:
        return None
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(seconds, float))
    (exponent, _), covariance = np.polyfit(x, y, 1, cov=True)
    reach = stdtrit(len(x) - 2, (1 + _CONFIDENCE) / 2) * math.sqrt(covariance[0, 0])
    return PowerLaw(float(exponent), float(exponent - reach), float(exponent + reach))


def series_of(cells: Iterable[Cell], least_sizes: int = LEAST_SIZES) -> list[Series]:
    """Return a series for each variant on problems that differ only in size.

    Else, if the GPUs grow with the size, one size is the square root of both multiplied. Series
    with fewer than `least_sizes` sizes and cells with a different decision are left out.
    """
    timed = [cell for cell in cells if cell.decision != "different" and _point(cell)]
    all_series: list[Series] = []
    rest: list[Cell] = []
    # 1. Problems that differ only in size.
    for sweep, group in _sweeps(timed, of_gpus=True).items():
        if len({cell.size for cell in group}) > 1:
            all_series += _series(sweep, group[0].size_name or "", group, of_gpus=False)
        else:
            rest += group
    # 2. Among the others, problems that have more GPUs the larger they are.
    for sweep, group in _sweeps(rest, of_gpus=False).items():
        pairs = sorted({(cell.size or 0.0, cell.problem.gpus) for cell in group})
        gpus = [count for _, count in pairs]
        if len(pairs) > 1 and gpus == sorted(set(gpus)) and len(dict(pairs)) == len(pairs):
            all_series += _series(sweep, f"sqrt({group[0].size_name} * GPUs)", group, of_gpus=True)
    return [series for series in all_series if len({p.size for p in series.points}) >= least_sizes]


def _sweeps(cells: Iterable[Cell], of_gpus: bool) -> dict[str, list[Cell]]:
    """Return the cells of each sweep, those of each machine apart."""
    groups = defaultdict[tuple[str, str | None], list[Cell]](list)
    for cell in cells:
        groups[_sweep(cell, of_gpus), cell.environment.machine].append(cell)
    machines = Counter(sweep for sweep, _ in groups)
    return {
        f"{sweep} on machine {machine}" if machines[sweep] > 1 else sweep: group
        for (sweep, machine), group in groups.items()
    }


def _series(sweep: str, size_name: str, cells: Sequence[Cell], of_gpus: bool) -> Iterator[Series]:
    """Yield a series per variant."""
    for variant in dict.fromkeys(cell.variant for cell in cells):
        group = [cell for cell in cells if cell.variant == variant]
        points = filter(None, (_point(cell, of_gpus) for cell in group))
        ordered = tuple(sorted(points, key=lambda point: point.size))
        yield Series(sweep, size_name, variant, ordered)


def _point(cell: Cell, of_gpus: bool = False) -> Point | None:
    """Return the time of a cell; None without a size or a time."""
    size, spent = cell.size or 0.0, median(cell.cpu_s) or 0.0
    if of_gpus:
        size = math.sqrt(size * cell.problem.gpus)
    budget = cell.settings.budget if cell.settings else 0.0
    if size <= 0:
        return None
    if cell.status == "over budget" and cell.projection_s:
        return Point(size, cell.projection_s, "projected", budget or None)
    if cell.status == "over budget" and budget:
        return Point(size, budget, "stopped", budget)
    return Point(size, spent) if cell.status == "ok" and spent else None


def _sweep(cell: Cell, of_gpus: bool) -> str:
    """Return what a cell's problem shares with problems of other sizes, and of other GPUs.

    The parameter with the size's name is left out, or else the only number: the size of
    `optimizer[impl=single,params=20]` is counted in ops, but `params` sets it.
    """
    workload = cell.problem.workload
    numbers = [k for k, value in workload.parameters.items() if value.isdigit() and k != "seed"]
    size = cell.size_name
    if size not in workload.parameters and len(numbers) == 1:
        (size,) = numbers
    shared = {name: value for name, value in workload.parameters.items() if name != size}
    gpus = f":{cell.problem.gpus}" if of_gpus else ""
    return f"{WorkloadSpec(workload.name, shared)}/{cell.problem.topology}{gpus}"


def growth_table(family: FamilyView) -> Table:
    """Return a row per sweep and variant, with its sizes and its fitted exponent."""

    def sizes(row: Series) -> str | None:
        sizes = [point.size for point in row.measured]
        return f"{count(min(sizes))} to {count(max(sizes))} {row.size_name}" if sizes else None

    def exponent(row: Series) -> str | None:
        return with_interval(*row.fit, partial(number, digits=2)) if row.fit else None

    return table_of(
        series_of(family.records),
        code("problems", "sweep"),
        code("variant"),
        text("sizes", sizes),
        numbers("exponent of CPU time", exponent),
    )


def draw_growth(family: FamilyView) -> Iterator[Drawing]:
    """Draw a figure per sweep: CPU time against size, with exponents and stopped calls."""
    sweeps: dict[tuple[str, str], list[Series]] = {}
    for series in series_of(family.records):
        sweeps.setdefault((series.sweep, series.size_name), []).append(series)
    for place, ((sweep, size_name), lines) in enumerate(sweeps.items(), start=1):
        figure, axes = canvas.new_figure(4.2)
        keys = [_draw_line(axes, line, family.variants.index(line.variant)) for line in lines]
        points = [point for line in lines for point in line.points]
        for budget in sorted({p.budget_s for p in points if p.budget_s}):
            label = f"budget of a call, {seconds(budget, trim=True)} (wall)"
            keys.append(axes.axhline(budget, label=label, color=GREY, linestyle=":", linewidth=1))
        canvas.log_axis(axes.yaxis, canvas.write_time, canvas.TIMES)
        canvas.log_axis(axes.xaxis, count)
        axes.set(xlabel=size_name, ylabel="planning time (CPU)")
        axes.grid(True)
        caption = f"`{sweep}`. In brackets the 95 % interval of the exponent."
        hollow = partial(canvas.key, color=GREY, linestyle="--", markerfacecolor="white")
        if any(point.kind == "projected" for point in points):
            keys.append(hollow("projection, not measured", marker="o"))
            caption += (
                " Hollow points are of calls that passed their budget, projected from their "
                "progress. They take no part in the fit."
            )
        if any(point.kind == "stopped" for point in points):
            keys.append(hollow("stopped there, takes longer", marker="^"))
            caption += (
                " Hollow triangles are calls that were stopped at their budget with no progress "
                "to project from."
            )
        figure.legend(handles=keys, loc="outside right upper")
        slug, title = f"{family.slug}-size-{place}", "Planning time against size"
        yield canvas.finish(figure, slug, title, caption, _frame(lines))


def _draw_line(axes: Axes, line: Series, place: int) -> Line2D:
    """Draw the times of a family's nth variant; return its entry in the legend."""

    def plot(points: Sequence[Point], **look: Any) -> None:
        axes.plot([p.size for p in points], [p.seconds for p in points], **look)

    marker, colour = MARKERS[place % len(MARKERS)], canvas.colour_of(place)
    look: dict[str, Any] = {"color": colour, "markersize": 5}
    plot(line.measured, marker=marker, linewidth=1.5, **look)
    if ended := [point for point in line.points if point.kind != "measured"]:
        tail = sorted([*line.measured[-1:], *ended], key=lambda point: point.size)
        plot(tail, linestyle="--", linewidth=1, color=colour)
        hollow = {**look, "markerfacecolor": "white", "linestyle": "none"}
        plot([point for point in ended if point.kind == "projected"], marker=marker, **hollow)
        plot([point for point in ended if point.kind == "stopped"], marker="^", **hollow)
    fit = f"\nsize^{with_interval(*line.fit, hundredths)}" if line.fit else ""
    return canvas.key(line.variant + fit, marker=marker, **look)


def _frame(lines: Sequence[Series]) -> pd.DataFrame:
    """Return the points of a sweep as data for users."""
    return pd.DataFrame(
        [
            {
                "sweep": line.sweep,
                "size_name": line.size_name,
                "variant": line.variant,
                "size": point.size,
                "seconds": point.seconds,
                "projected": point.kind == "projected",
                "stopped": point.kind == "stopped",
                "budget_s": point.budget_s,
                **(line.fit or PowerLaw(math.nan, math.nan, math.nan))._asdict(),
            }
            for line in lines
            for point in line.points
        ]
    )

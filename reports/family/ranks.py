"""The load of each rank under two plans: the reference's plan, and the best different plan."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from harness.model.cell import RankTable
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, ORANGE, VERMILION, Drawing
from reports.core.formatting import count, number, percent
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


def draw_ranks(family: FamilyView) -> Iterator[Drawing]:
    """Draw the plans side by side: a row of bars per figure, with the capacity as a line."""
    view = ranks(family)
    if view is None or not view.names:
        return
    names = view.names
    figure = canvas.blank_figure(0.9 + 1.75 * len(names))
    grid = figure.subplots(
        len(names), len(view.variants), sharex="col", sharey="row", squeeze=False
    )
    limited = False
    for place, (row, name) in enumerate(zip(grid, names, strict=True)):
        for axes, variant in zip(row, view.variants, strict=True):
            held = view.of(variant, name)
            _draw_bars(axes, held)
            capacity = float(held["capacity"].max())
            if not math.isnan(capacity):
                limited = True
                axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
            most, mean = held["value"].max(), held["value"].mean()
            said = f"most {number(float(most))}, mean {number(float(mean))}"
            plan = f"{canvas.short(variant, _LONGEST_NAME)}\n" if place == 0 else ""
            axes.set_title(f"{plan}{said}", loc="left")
            axes.grid(axis="y")
        # After all bars of a row: its axes share the limit, and a limit that is set stays fixed.
        lows = [float(view.of(variant, name)["value"].min()) for variant in view.variants]
        row[0].set_ylim(bottom=min(0.0, *lows))
        row[0].set_ylabel(canvas.short(name, _LONGEST_NAME))
    for axes in grid[-1]:
        axes.set_xlabel("rank")
    handles: list[Any] = [
        Patch(facecolor=BLUE, label="a rank"),
        Patch(facecolor=VERMILION, edgecolor="white", hatch="///", label="the heaviest"),
    ]
    if limited:
        handles.append(canvas.key("capacity of a rank", color="black", linestyle="--"))
    canvas.legend_above(figure, *handles)
    yield canvas.finish(
        figure, f"{family.slug}-ranks", "The load of each rank", _caption(view), view.figures
    )


def _draw_bars(axes: Axes, held: pd.DataFrame) -> None:
    values = held["value"].to_numpy()
    heaviest = int(values.argmax())
    if len(values) > _MOST_BARS:  # draw an outline, since bars would be a pixel wide
        step = math.ceil(len(values) / _MOST_STEPS)
        tops = [values[place : place + step].max() for place in range(0, len(values), step)]
        edges = [place * step - 0.5 for place in range(len(tops) + 1)]
        axes.stairs(tops, edges, fill=True, color=BLUE)
        axes.plot(heaviest, values[heaviest], marker="v", color=ORANGE, markeredgecolor="black")
        return
    colours = [VERMILION if place == heaviest else BLUE for place in range(len(values))]
    bars = axes.bar(held["rank"], values, 0.8, color=colours)
    bars[heaviest].set(hatch="///", edgecolor="white", linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _caption(view: RankView) -> str:
    """Return the figure's caption, which states that the loads are estimates."""
    plans = " and ".join(f"`{name}`" for name in view.variants)
    text = f"The plans of {plans} on `{view.problem}`, by the planner's own estimate."
    if view.ranks > _MOST_STEPS:
        text += f" A step is the heaviest of {math.ceil(view.ranks / _MOST_STEPS)} neighbours."
    if len(view.variants) == 1:
        text += " No variant has a different plan to compare it with."
    return text

"""Comparisons with another variant than the reference: tables, figure and verdict."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.measuring.verdict import CONFIDENCE
from harness.model.cell import projected_speedup
from reports.figures.canvas import (
    GREY,
    LONGEST_NAME,
    VERMILION,
    Drawing,
    colour_of,
    finish,
    log_number,
    make_log_room,
    new_figure,
    short,
    write_beside,
)
from reports.findings.measured import Finding, effect
from reports.formatting import interval, listing, number
from reports.tables.family import (
    Column,
    Entry,
    Qualities,
    Row,
    Table,
    code_column,
    new_table,
    number_column,
    outcome_entry,
    time_entry,
)
from reports.views.family import FamilyView, rows_of

_COLUMNS = [
    *("problem", "against", "variant", "cpu_s", "times_as_fast", "low", "high", "projected"),
    *("outcome", "decision", "quality", "bound", "gap"),
]


def speedups(family: FamilyView) -> pd.DataFrame:
    """How many times as fast each variant is where another than the reference is compared with.

    A row per cell of such problems. `low` and `high` are the interval; where the variant compared
    with was stopped there is none, and `projected` says that the figure is from its projection.
    """
    stored = {str(cell.id): cell for cell in family.records}
    primary = family.primary_qualities
    best = dict(zip(primary["cell"], primary["value"], strict=True))
    rows = []
    for problem, against in family.against.items():
        if against == family.reference:
            continue
        cells = family.on(problem)
        stopped = stored[cells[against]["cell"]] if against in cells else None
        for variant, cell in cells.items():
            projected = stopped and projected_speedup(stored[cell["cell"]], stopped)
            measured = 1.0 if cell["outcome"] == "reference" else 1 / cell["ratio"]
            rows.append(
                {
                    "problem": problem,
                    "against": against,
                    "variant": variant,
                    "cpu_s": cell["cpu_s"],
                    "times_as_fast": projected or measured,
                    "low": 1 / cell["ratio_high"],
                    "high": 1 / cell["ratio_low"] if cell["ratio_low"] else math.inf,
                    "projected": projected is not None,
                    "outcome": cell["outcome"],
                    "decision": family.whose_decision(cell),
                    "quality": best.get(cell["cell"], math.nan),
                    "bound": cell["bound"],
                    "gap": cell["gap"],
                }
            )
    return pd.DataFrame(rows, columns=_COLUMNS)


def against_tables(family: FamilyView) -> Iterator[tuple[str, Table]]:
    """Yield for each such problem a caption and a table, a row per variant."""
    for (problem, against), group in speedups(family).groupby(["problem", "against"], sort=False):
        qualities = Qualities(family, str(problem), most=True)
        cells = family.on(str(problem))
        rows: list[Row] = [
            (
                row["variant"],
                time_entry(row["cpu_s"]),
                Entry(_times(row), row["times_as_fast"]),
                Entry(_interval(row), row["low"]),
                outcome_entry(row["outcome"]),
                row["decision"],
                *qualities.entries(cells[row["variant"]]),
            )
            for row in rows_of(group)
        ]
        columns: tuple[Column | str, ...] = (
            *(code_column("variant"), number_column("CPU time"), number_column("times as fast")),
            number_column("interval"),
            "outcome",
            "decision",
            *qualities.columns,
        )
        yield f"`{problem}`, compared with `{against}`.", new_table(columns, rows)


def _times(row: dict[str, Any]) -> str:
    figure = number(row["times_as_fast"])
    return f"≥ {figure} (projected)" if row["projected"] else figure


def _interval(row: dict[str, Any]) -> str:
    return interval(row["low"], row["high"])


def draw_against(family: FamilyView) -> Iterator[Drawing]:
    """Draw all such problems below one another, where anything is to be compared."""
    table = speedups(family)
    drawn = table[table["variant"] != table["against"]]
    if not drawn["times_as_fast"].notna().any():
        return
    groups = drawn.groupby("problem", sort=False)
    figure, axes = new_figure(1.0 + 0.3 * len(drawn) + 0.36 * len(groups))
    least = min(drawn[["times_as_fast", "low"]].min().min(), 1.0)
    low = 1.0 if least == 1.0 else max(least * 0.85, 1e-6)
    axes.set_xscale("log")
    axes.set_xlim(low, max(drawn["times_as_fast"].max() * 1.05, 2.0))
    places, names, place = [], [], 0.0
    for problem, group in groups:
        axes.annotate(
            str(problem),
            (0, place),
            (2, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
        place += 0.9
        for row in rows_of(group):
            _draw_bar(axes, place, row, colour_of(family.variants.index(row["variant"])))
            places.append(place)
            names.append(row["variant"])
            place += 1
        place += 0.3
    axes.set_yticks(places, [short(name, LONGEST_NAME) for name in names])
    axes.set_ylim(place - 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    with_whom = list(dict.fromkeys(drawn["against"]))
    whom = with_whom[0] if len(with_whom) == 1 else "the variant compared with"
    axes.set_xlabel(f"times as fast as {whom}, log scale")
    handles: list[Any] = [
        Line2D(
            [],
            [],
            color="black",
            marker="|",
            markersize=7,
            label=f"{100 * CONFIDENCE:.0f} % interval",
        )
    ]
    if drawn["projected"].any():
        label = "from a projection, not measured"
        handles.append(Patch(facecolor="white", edgecolor=GREY, linestyle="--", label=label))
    figure.legend(handles=handles, loc="outside upper left", ncols=2)
    make_log_room(axes)
    log_number(axes)
    caption = (
        f"CPU time of {listing([f'`{name}`' for name in with_whom])} over that of each variant, "
        "from calls that took turns."
    )
    if drawn["projected"].any():
        caption += (
            " Outlined bars are no measurements: the call compared with was stopped, and its "
            "projection is set over the variant's wall time."
        )
    title = f"Times as fast as {whom}"
    yield finish(figure, f"{family.slug}-against", title, caption, table)


def _draw_bar(axes: Axes, place: float, row: dict[str, Any], colour: str) -> None:
    reached = row["times_as_fast"]
    if math.isnan(reached):
        write_beside(axes, 1.0, place, row["outcome"], VERMILION)
        return
    look: dict[str, Any] = {"color": colour, "edgecolor": colour}
    if row["projected"]:
        look = {"color": "white", "edgecolor": colour, "linestyle": "--", "linewidth": 1.2}
    axes.barh(place, reached - 1, 0.62, left=1, **look)
    end, text = max(reached, 1.0), _times(row)
    if math.isfinite(row["low"]) and math.isfinite(row["high"]):
        reach = [[reached - row["low"]], [row["high"] - reached]]
        axes.errorbar(reached, place, xerr=reach, color="black", capsize=3, linewidth=1)
        end, text = max(row["high"], 1.0), f"{text} ({_interval(row)})"
    write_beside(axes, end, place, text)


def against(family: FamilyView) -> Iterator[Finding]:
    """Say for each variant that others are compared with how they do on the largest problem."""
    table = speedups(family)
    sizes = family.cells.groupby("problem")["size"].max()
    for name, group in table.groupby("against", sort=False):
        group = group[(group["variant"] != name) & group["times_as_fast"].notna()]
        if group.empty:
            continue
        problem = max(group["problem"].unique(), key=lambda each: sizes.fillna(0.0)[each])
        on_it = group[group["problem"] == problem].sort_values("times_as_fast", ascending=False)
        rows = rows_of(on_it)
        best = [
            row
            for decision in ("same", "own", "")
            for row in [each for each in rows if each["decision"] == decision][:1]
        ]
        if not best:
            continue
        told = [_told(row, str(name)) for row in best]
        detail = "No verdict stands on a projection." if best[0]["projected"] else ""
        yield Finding("verdict", family.name, f"On `{problem}`, {listing(told)}.", detail)


def _told(row: dict[str, Any], name: str) -> str:
    how = {"same": " with the same decision", "own": " with a decision of its own"}
    if row["projected"]:
        what = f"is projected to be at least {number(row['times_as_fast'])} times as fast as"
        return f"`{row['variant']}` {what} `{name}`{how.get(row['decision'], '')}"
    told = effect({"outcome": row["outcome"], "ratio": 1 / row["times_as_fast"]}, name)
    return f"`{row['variant']}` {told}{how.get(row['decision'], '')}"

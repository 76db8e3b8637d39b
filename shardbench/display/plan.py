"""What `shardbench plan` shows: how good the plan is, and what each rank gets."""

import math
from collections.abc import Sequence

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.model.cell import RankTable
from harness.planning.plan import Planned
from reports.formatting import gap, seconds
from reports.tables.terminal import new_table

_MOST_ROWS = 64
_AT_EACH_END = 8
_WIDTH = 80


def planned(plan: Planned, all_ranks: bool) -> RenderableType:
    """Show a plan: a headline, and a row with a bar for each rank.

    Of more than 64 ranks the heaviest and the lightest are shown, unless all are asked for.
    """
    return Group(
        Text(str(plan.cell), style="bold"), Text(_headline(plan)), "", _ranks(plan.ranks, all_ranks)
    )


def _headline(plan: Planned) -> str:
    first = plan.first
    unit = "" if first.unit in first.name.split("_") else f" {first.unit}"
    told = [f"{first.name} {plan.quality[first.name]:,.5g}{unit}"]
    if plan.bound and not math.isnan(share := plan.bound.gap(plan.quality)):
        told += [f"bound {plan.quality[plan.bound.name]:,.5g}{unit}", f"gap {gap(share)}"]
    told.append(f"in {seconds(plan.planning_s, trim=True)}")
    return f"{', '.join(told)} (set-up {seconds(plan.whole_s - plan.planning_s, trim=True)})"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _ranks(ranks: RankTable, all_ranks: bool) -> Table:
    titles = [
        name if capacity is None else f"{name}\nof {_figure(capacity)}"
        for name, capacity in zip(ranks.columns, ranks.capacities, strict=True)
    ]
    table = new_table("", "rank", *titles, right=["rank", *titles])
    place = ranks.columns.index(ranks.bar)
    width = max(8, min(30, _WIDTH - 8 - 12 * len(titles)))
    table.add_column(ranks.bar, width=width)
    heaviest = max((row[place] for row in ranks.rows), default=0.0)
    order = sorted(range(len(ranks.rows)), key=lambda rank: -ranks.rows[rank][place])
    if all_ranks or len(order) <= _MOST_ROWS:
        groups: Sequence[Sequence[int]] = [sorted(order)]
    else:
        groups = [order[:_AT_EACH_END], order[-_AT_EACH_END:]]
    for index, group in enumerate(groups):
        if index:
            left_out = len(order) - 2 * _AT_EACH_END
            table.add_row("...", *[""] * len(titles), f"{left_out:,} ranks between are left out")
        for rank in group:
            row = ranks.rows[rank]
            bar = Bar(heaviest or 1.0, 0, row[place], width=width, color="blue")
            table.add_row(str(rank), *(_figure(value) for value in row), bar)
    return table

"""The tables of what each rank gets under two plans."""

from collections.abc import Mapping
from typing import Any

from reports.core.formatting import count, percent
from reports.core.table import Table, TableColumn, code, numbers, table_of, text
from reports.family.ranks import RankView


def ranks_table(view: RankView) -> Table:
    """Return a row per rank, with the figures of the plans beside each other."""

    def column(name: str, variant: str) -> TableColumn:
        found = view.of(variant, name)
        held = dict(zip(found["rank"], found["value"], strict=True))
        return numbers(f"{name}, {variant}", held.get)

    columns = (column(name, variant) for name in view.names for variant in view.variants)
    ranks = range(int(view.figures["rank"].max()) + 1)
    return table_of(ranks, numbers("rank", lambda rank: rank, count), *columns)


def loads_table(view: RankView) -> Table:
    """Return a row per plan and figure: the heaviest rank, the mean, and what is left."""
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

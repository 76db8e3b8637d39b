"""Made-up loads of ranks, for made-up results."""

from typing import Any

COLUMNS = ["ms", "HBM GiB", "DDR GiB"]


def ranks(heaviest: float, amount: int = 4) -> dict[str, Any]:
    """Return a stored `RankTable` of `amount` ranks; the last rank has the largest load."""
    rows = [[heaviest * (n + 1) / amount, 10.0 + n, 0.0] for n in range(amount)]
    return {"columns": COLUMNS, "rows": rows, "capacities": [None, 16.0, 64.0], "bar": "ms"}


def with_ranks(lines: list[dict[str, Any]], amount: int = 4) -> list[dict[str, Any]]:
    """Return lines of results; those with a quality get the loads of `amount` ranks."""
    return [
        line | {"ranks": ranks(line["quality"]["max_widget_ms"], amount)}
        if line["quality"]
        else line
        for line in lines
    ]

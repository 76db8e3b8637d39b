"""Made-up figures by rank for made-up results."""

from typing import Any

COLUMNS = ["ms", "HBM GiB", "DDR GiB"]


def ranks(heaviest: float, amount: int = 4) -> dict[str, Any]:
    """What each of so many ranks gets; the last one is the heaviest."""
    rows = [[heaviest * (n + 1) / amount, 10.0 + n, 0.0] for n in range(amount)]
    return {"columns": COLUMNS, "rows": rows, "capacities": [None, 16.0, 64.0], "bar": "ms"}


def with_ranks(lines: list[dict[str, Any]], amount: int = 4) -> list[dict[str, Any]]:
    """Return lines of which those that have a quality tell what each rank gets."""
    return [
        line | {"ranks": ranks(line["quality"]["max_widget_ms"], amount)}
        if line["quality"]
        else line
        for line in lines
    ]

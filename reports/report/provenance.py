"""Tables of provenance: environments of measurements, sources of variants."""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.core.formatting import MISSING, count, number
from reports.core.frames import Results
from reports.core.table import Table, code, table_of, text
from reports.family.data import FamilyView, environments, rows_of


def environment_table(results: Results) -> Table:
    """Return versions, machine, load and seed, a column per environment."""
    held = environments(results)
    packages = [found.get("packages") or {} for found in held]

    def row(name: str, found: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return (name, *(str(values.get(name, MISSING)) for values in found))

    rows = [
        ("cells", *(count(len(found["cells"])) for found in held)),
        *(row(name, held) for name in ("shardbench", "python")),
        *(row(name, packages) for name in dict.fromkeys(n for found in packages for n in found)),
        *(row(name, held) for name in ("machine", "cpu", "cores", "seed")),
        ("load", *(_range(found["loads"]) for found in held)),
        ("started", *(_range(found["starts"]) for found in held)),
    ]
    titles = [f"environment {n}" if len(held) > 1 else "value" for n in range(1, len(held) + 1)]
    columns = (text(title, place) for place, title in enumerate(titles, start=1))
    return table_of(rows, text("what", 0), *columns)


def _range(values: Sequence[float] | Sequence[str]) -> str:
    if not values:
        return MISSING
    low, high = (v if isinstance(v, str) else number(float(v)) for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def sources_table(family: FamilyView) -> Table:
    """Return the source of every variant, and the decision that it must reproduce."""
    last = {row["variant"]: row for row in rows_of(family.cells)}
    must = text("must decide", _must)
    columns = (code("variant"), text("what it does", "summary"), must, text("source"))
    return table_of(last.values(), *columns)


def _must(row: Mapping[str, Any]) -> str:
    if row["variant"] == row["reference"]:
        return "it is the reference"
    return f"the same as {row['same_as']}" if row["same_as"] else "on its own"

"""Where the results are from: environments of the measurements, sources of the variants."""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.formatting import MISSING, count, number
from reports.frames import Results
from reports.tables.family import Table, code_column, new_table
from reports.views.family import FamilyView, environments, rows_of

_MACHINE = ("machine", "cpu", "cores", "seed")


def environment_table(results: Results) -> Table:
    """Versions, machine, load and seed, a column per environment."""
    held = environments(results)
    packages = dict.fromkeys(name for e in held for name in (e.get("packages") or {}))
    rows = [
        ("cells", *(count(len(e["cells"])) for e in held)),
        *((name, *(str(e.get(name, MISSING)) for e in held)) for name in ("shardbench", "python")),
        *(
            (name, *(str((e.get("packages") or {}).get(name, MISSING)) for e in held))
            for name in packages
        ),
        *((name, *(str(e.get(name, MISSING)) for e in held)) for name in _MACHINE),
        ("load", *(_range(e["loads"]) for e in held)),
        ("started", *(_range(e["starts"]) for e in held)),
    ]
    titles = [f"environment {n}" if len(held) > 1 else "value" for n in range(1, len(held) + 1)]
    return new_table(("what", *titles), rows)


def _range(values: Sequence[float] | Sequence[str]) -> str:
    if not values:
        return MISSING
    low, high = (v if isinstance(v, str) else number(float(v)) for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def sources_table(family: FamilyView) -> Table:
    """Where every variant comes from, and what it must decide."""
    last = {row["variant"]: row for row in rows_of(family.cells)}
    rows = [(name, row["summary"], _must(row), row["source"]) for name, row in last.items()]
    return new_table((code_column("variant"), "what it does", "must decide", "source"), rows)


def _must(row: Mapping[str, Any]) -> str:
    if row["variant"] == row["reference"]:
        return "it is the reference"
    return f"the same as {row['same_as']}" if row["same_as"] else "on its own"

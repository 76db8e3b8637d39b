"""Two results files set against each other, cell by cell: the data of every table and sentence."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from msgspec import to_builtins

from harness.model.cell import Cell
from harness.suites.difference import (
    Deviation,
    Kind,
    compare_counters,
    compare_qualities,
    compare_ratios,
)
from reports.frames import Results
from reports.views.family import rows_of

# Qualities are sums of floats, which another release of a library may add up in another order.
_ROUNDING = 1e-9

Cells = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Comparison:
    """Two results files; A is what was before, B what is now."""

    a: Results
    b: Results

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row per cell of either file, in the order of A and then of B.

        `where` is `both`, `only A` or `only B`. `decision` is `same`, `different`, or "" where one
        of the two has no fingerprint. `ratio_*`, `low_*`, `high_*` are shares of the time of the
        variant compared with, `moved` is how they changed: `less` or `more` time where the two
        intervals have nothing in common, `within` where they have, "" where they cannot be set
        beside each other. `cpu_s_*` are CPU seconds, NaN unless one machine measured both.
        """
        before, after = _cells(self.a), _cells(self.b)
        return pd.DataFrame(
            [_row(cell, before.get(cell), after.get(cell)) for cell in before | after]
        )

    @cached_property
    def both(self) -> pd.DataFrame:
        """The cells that both files have."""
        return self.cells[self.cells["where"] == "both"]

    @cached_property
    def counters(self) -> pd.DataFrame:
        """The counters that differ, the one that grew by the largest factor first.

        A row per cell and counter: `a`, `b`, and `factor`, b over a, infinite from 0 on.
        """
        rows = [
            {"cell": str(a.id), "family": a.family, "name": name, "a": was, "b": now}
            | {"factor": _factor(was, now)}
            for a, b in self._pairs()
            for _, name, was, now in _figures(compare_counters(a.counters, b.counters))
        ]
        columns = ["cell", "family", "name", "a", "b", "factor"]
        table = pd.DataFrame(rows, columns=columns)
        return table.sort_values("factor", ascending=False, kind="stable", ignore_index=True)

    @cached_property
    def qualities(self) -> pd.DataFrame:
        """The qualities that differ, the worst change first.

        A row per cell and quality: `a`, `b`, `unit`, `better`, `effect` (`better` or `worse`) and
        `change`, how much more b is, as a share of a.
        """
        rows = []
        for a, b in self._pairs():
            known = {each.name: each for each in (*b.qualities, *a.qualities)}
            better = {name: each.better for name, each in known.items()}
            found = compare_qualities(a.quality, b.quality, better, _ROUNDING)
            for kind, name, was, now in _figures(found):
                rows.append(
                    {"cell": str(a.id), "family": a.family, "name": name, "a": was, "b": now}
                    | {"unit": known[name].unit, "better": better[name]}
                    | {"change": _factor(was, now) - 1}
                    | {"effect": "better" if kind == "win" else "worse"}
                )
        columns = ["cell", "family", "name", "unit", "better", "a", "b", "change", "effect"]
        table = pd.DataFrame(rows, columns=columns)
        size = table["change"].abs()
        order = size.where(table["effect"] == "worse", -size).astype("float64")
        index = order.sort_values(ascending=False, kind="stable").index
        return table.loc[index].reset_index(drop=True)

    def _pairs(self) -> list[tuple[Cell, Cell]]:
        """The cells that both files have, as they are in A and in B."""
        after = {cell.id: cell for cell in self.b.records}
        return [(cell, after[cell.id]) for cell in self.a.records if cell.id in after]

    @cached_property
    def settings(self) -> pd.DataFrame:
        """What the two were measured with: a row per version, machine or setting, `a` and `b`."""
        a, b = _measured_with(self.a), _measured_with(self.b)
        rows = [(name, a.get(name, ""), b.get(name, "")) for name in a | b]
        return pd.DataFrame(rows, columns=["what", "a", "b"])


def _cells(results: Results) -> Cells:
    """Return the rows of the cells by id, each with the machine that measured it."""
    pairs = zip(results.records, rows_of(results.cells), strict=True)
    return {
        str(cell.id): row | {"measured_by": cell.environment.machine or ""} for cell, row in pairs
    }


def _figures(found: Iterable[Deviation]) -> Iterator[tuple[Kind, str, float, float]]:
    """Yield the figures that both have, without the kind of figure in their names."""
    for each in found:
        if isinstance(each.expected, int | float) and isinstance(each.measured, int | float):
            yield each.kind, each.what.partition(".")[2], each.expected, each.measured


def _row(cell: str, a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any]:
    known = a or b or {}
    both = a is not None and b is not None
    here = bool(a and b and a["measured_by"] and a["measured_by"] == b["measured_by"])
    return {
        "cell": cell,
        "family": known["family"],
        "where": "both" if both else "only A" if a else "only B",
        "status_a": a["status"] if a else "",
        "status_b": b["status"] if b else "",
        "outcome_a": a["outcome"] if a else "",
        "outcome_b": b["outcome"] if b else "",
        "decision": _decision(a, b) if a and b else "",
        "against_a": a["against"] if a else "",
        "against_b": b["against"] if b else "",
        **_ratio("a", a),
        **_ratio("b", b),
        "moved": _moved(a, b) if a and b else "",
        "one_machine": here,
        "cpu_s_a": a["cpu_s"] if a and here else math.nan,
        "cpu_s_b": b["cpu_s"] if b and here else math.nan,
    }


def _decision(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    if not a["fingerprint"] or not b["fingerprint"]:
        return ""
    return "same" if a["fingerprint"] == b["fingerprint"] else "different"


def _ratio(which: str, cell: Mapping[str, Any] | None) -> dict[str, float]:
    names = {"ratio": "ratio", "low": "ratio_low", "high": "ratio_high"}
    return {f"{to}_{which}": float(cell[of]) if cell else math.nan for to, of in names.items()}


def _moved(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    before, now = ((each["ratio_low"], each["ratio_high"]) for each in (a, b))
    if a["against"] != b["against"] or any(map(math.isnan, (*before, *now))):
        return ""
    kinds = {each.kind for each in compare_ratios(before, now)}
    return "less" if "win" in kinds else "more" if "regression" in kinds else "within"


def _factor(a: float, b: float) -> float:
    if a:
        return b / a
    return math.inf if b > 0 else -math.inf if b < 0 else 1.0


def _measured_with(results: Results) -> dict[str, str]:
    """By name the versions, the machine and the settings of a file's cells; several are listed."""
    found: dict[str, dict[str, None]] = {}
    for cell in results.records:
        for name, value in _facts(cell):
            found.setdefault(name, {})[value] = None
    return {name: ", ".join(values) for name, values in found.items()}


def _facts(cell: Cell) -> Iterator[tuple[str, str]]:
    told = to_builtins(cell.environment)
    packages = told.pop("packages", {})
    for name in ("shardbench", "code", "python"):
        if name in told:
            yield name, str(told[name])
    yield from packages.items()
    for name in ("system", "machine", "cpu", "cores", "memory_gib"):
        if name in told:
            yield name, str(told[name])
    if cell.settings:
        yield "budget of a call [s]", f"{cell.settings.budget:g}"
        yield "seconds of timing a problem", f"{cell.settings.sampling.seconds:g}"

"""Two results files set against each other, cell by cell: the data of every table and sentence."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

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
        table = self._joined(self.a.counters, self.b.counters)
        table = table[table["a"] != table["b"]]
        factor = [_factor(row["a"], row["b"]) for row in rows_of(table)]
        table = table.assign(factor=factor).sort_values("factor", ascending=False, kind="stable")
        return table[["cell", "family", "name", "a", "b", "factor"]].reset_index(drop=True)

    @cached_property
    def qualities(self) -> pd.DataFrame:
        """The qualities that differ, the worst change first.

        A row per cell and quality: `a`, `b`, `unit`, `better`, `effect` (`better` or `worse`) and
        `change`, how much more b is, as a share of a.
        """
        table = self._joined(self.a.qualities, self.b.qualities)
        differs = [
            not math.isclose(row["a"], row["b"], rel_tol=_ROUNDING) for row in rows_of(table)
        ]
        table = table[pd.Series(differs, index=table.index, dtype=bool)]
        rows = rows_of(table)
        change = [_factor(row["a"], row["b"]) - 1 for row in rows]
        gained = [(row["b"] < row["a"]) == (row["better"] != "higher") for row in rows]
        table = table.assign(change=change, effect=["better" if g else "worse" for g in gained])
        order = table["change"].abs().where(table["effect"] == "worse", -table["change"].abs())
        table = table.loc[order.sort_values(ascending=False, kind="stable").index]
        columns = ["cell", "family", "name", "unit", "better", "a", "b", "change", "effect"]
        return table[columns].reset_index(drop=True)

    def _joined(self, a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
        """Figures that both have of one cell and name, their values as `a` and `b`."""
        keys = ["cell", "name"]
        joined = a.rename(columns={"value": "a"}).merge(
            b[[*keys, "value"]].rename(columns={"value": "b"}), on=keys
        )
        return joined[joined["cell"].isin(self.both["cell"])]

    @cached_property
    def settings(self) -> pd.DataFrame:
        """What the two were measured with: a row per version, machine or setting, `a` and `b`."""
        a, b = _measured_with(self.a), _measured_with(self.b)
        rows = [(name, a.get(name, ""), b.get(name, "")) for name in a | b]
        return pd.DataFrame(rows, columns=["what", "a", "b"])


def _cells(results: Results) -> Cells:
    """The cells by id, each with its machine and what it is compared with."""
    records = {str(record["cell"]): record for record in results.records}
    found: Cells = {}
    for row in rows_of(results.cells):
        told = records[row["cell"]].get("environment") or {}
        found[str(row["cell"])] = row | {"measured_by": told.get("machine") or ""}
    return found


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
    bounds = [each[name] for each in (a, b) for name in ("ratio_low", "ratio_high")]
    if a["against"] != b["against"] or any(math.isnan(bound) for bound in bounds):
        return ""
    if b["ratio_high"] < a["ratio_low"]:
        return "less"
    return "more" if b["ratio_low"] > a["ratio_high"] else "within"


def _factor(a: float, b: float) -> float:
    if a:
        return b / a
    return math.inf if b > 0 else -math.inf if b < 0 else 1.0


def _measured_with(results: Results) -> dict[str, str]:
    """By name the versions, the machine and the settings of a file's cells; several are listed."""
    found: dict[str, dict[str, None]] = {}
    for record in results.records:
        for name, value in _facts(record):
            found.setdefault(name, {})[value] = None
    return {name: ", ".join(values) for name, values in found.items()}


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    told = record.get("environment") or {}
    for name in ("shardbench", "code", "python"):
        if told.get(name) is not None:
            yield name, str(told[name])
    for name, version in (told.get("packages") or {}).items():
        yield str(name), str(version)
    for name in ("system", "machine", "cpu", "cores", "memory_gib"):
        if told.get(name) is not None:
            yield name, str(told[name])
    settings = record.get("settings") or {}
    if isinstance(settings.get("budget"), int | float):
        yield "budget of a call [s]", f"{settings['budget']:g}"
    sampling = settings.get("sampling")
    if isinstance(sampling, Mapping) and isinstance(sampling.get("seconds"), int | float):
        yield "seconds of timing a problem", f"{sampling['seconds']:g}"

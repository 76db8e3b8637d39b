"""The differences between two results files, cell by cell, as frames."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
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
from reports.core.frames import Results
from reports.family.data import rows_of

# Relative tolerance for qualities: another release of a library may add floats in another order.
_ROUNDING = 1e-9
_TEXTS = ("family", "status", "outcome", "against", "fingerprint", "machine")
_NUMBERS = ("ratio", "low", "high", "cpu_s")
_CELLS = [
    *("cell", "family", "where", "status_a", "status_b", "outcome_a", "outcome_b", "decision"),
    *("against_a", "against_b", "ratio_a", "low_a", "high_a", "ratio_b", "low_b", "high_b"),
    *("moved", "one_machine", "cpu_s_a", "cpu_s_b"),
]


@dataclass(frozen=True)
class Changes:
    """The differences between two results files: A is the earlier file, B the later one."""

    a: Results
    b: Results

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row per cell of either file, in the order of A and then of B.

        `where` is `both`, `only A` or `only B`. `decision` is `same`, `different`, or "" if either
        fingerprint is missing. `ratio_*` is the CPU time over that of the variant `against_*`, and
        `low_*` and `high_*` are the ends of its interval. `moved` compares the two intervals:
        `less` or `more` time if they are disjoint, `within` if they overlap, "" if they are
        unknown or `against` differs. `cpu_s_*` is NaN unless one machine measured both.
        """
        found = pd.concat([_side(self.a, "a"), _side(self.b, "b")], axis=1)
        found = found.fillna({f"{name}_{file}": "" for name in _TEXTS for file in "ab"})
        in_a, in_b = found["family_a"] != "", found["family_b"] != ""
        marked = (found["fingerprint_a"] != "") & (found["fingerprint_b"] != "")
        same = found["fingerprint_a"] == found["fingerprint_b"]
        here = (found["machine_a"] != "") & (found["machine_a"] == found["machine_b"])
        found = found.assign(
            family=found["family_a"].where(in_a, found["family_b"]),
            where=np.select([in_a & in_b, in_a], ["both", "only A"], "only B"),
            decision=np.select([~marked, same], ["", "same"], "different"),
            moved=[_moved(row) for row in rows_of(found)],
            one_machine=here,
            cpu_s_a=found["cpu_s_a"].where(here),
            cpu_s_b=found["cpu_s_b"].where(here),
        )
        return found.reset_index(names="cell")[_CELLS]

    @cached_property
    def both(self) -> pd.DataFrame:
        """The cells that both files have."""
        return self.cells[self.cells["where"] == "both"]

    @cached_property
    def counters(self) -> pd.DataFrame:
        """The counters that differ, ordered by their factor, the largest factor first.

        A row per cell and counter: `a`, `b`, and `factor`, which is b / a, infinite if a is 0.
        """
        rows = [
            (str(a.id), a.family, name, was, now, _factor(was, now))
            for a, b in self._pairs()
            for _, name, was, now in _figures(compare_counters(a.counters, b.counters))
        ]
        table = pd.DataFrame(rows, columns=["cell", "family", "name", "a", "b", "factor"])
        return table.sort_values("factor", ascending=False, kind="stable", ignore_index=True)

    @cached_property
    def qualities(self) -> pd.DataFrame:
        """The qualities that differ, the worst change first.

        A row per cell and quality: `a`, `b`, `unit`, `better` (`lower` or `higher`), `effect` of
        the change (`better` or `worse`) and `change`, which is (b - a) / a.
        """
        rows = []
        for a, b in self._pairs():
            known = {quality.name: quality for quality in (*b.qualities, *a.qualities)}
            better = {name: quality.better for name, quality in known.items()}
            found = compare_qualities(a.quality, b.quality, better, _ROUNDING)
            for kind, name, was, now in _figures(found):
                effect = "better" if kind == "win" else "worse"
                figures = (was, now, _factor(was, now) - 1, effect)
                rows.append((str(a.id), a.family, name, known[name].unit, better[name], *figures))
        columns = ["cell", "family", "name", "unit", "better", "a", "b", "change", "effect"]
        table = pd.DataFrame(rows, columns=columns)
        size = table["change"].abs().astype(float)
        order = size.where(table["effect"] == "worse", -size)
        return table.loc[order.sort_values(ascending=False, kind="stable").index].reset_index(
            drop=True
        )

    def _pairs(self) -> list[tuple[Cell, Cell]]:
        """Return the cells that both files have, as pairs of A's cell and B's cell."""
        after = {cell.id: cell for cell in self.b.records}
        return [(cell, after[cell.id]) for cell in self.a.records if cell.id in after]

    @cached_property
    def settings(self) -> pd.DataFrame:
        """Versions, machines and settings: a row per name (`what`), with A's and B's values."""
        a, b = _measured_with(self.a), _measured_with(self.b)
        rows = [(name, a.get(name, ""), b.get(name, "")) for name in a | b]
        return pd.DataFrame(rows, columns=["what", "a", "b"])


def _side(results: Results, file: str) -> pd.DataFrame:
    """Return a file's columns to compare, indexed by cell; their names end in `_a` or `_b`."""
    held = results.cells.rename(columns={"ratio_low": "low", "ratio_high": "high"})
    held["machine"] = [cell.environment.machine or "" for cell in results.records]
    return held.set_index("cell")[[*_TEXTS, *_NUMBERS]].add_suffix(f"_{file}")


def _figures(found: Iterable[Deviation]) -> Iterator[tuple[Kind, str, float, float]]:
    """Yield kind, name, A's value and B's value of the numbers that both files have."""
    for each in found:
        if isinstance(each.expected, int | float) and isinstance(each.measured, int | float):
            yield each.kind, each.what.partition(".")[2], each.expected, each.measured


def _moved(row: dict[str, Any]) -> str:
    before, now = ((row[f"low_{file}"], row[f"high_{file}"]) for file in "ab")
    if row["against_a"] != row["against_b"] or any(map(math.isnan, (*before, *now))):
        return ""
    kinds = {deviation.kind for deviation in compare_ratios(before, now)}
    return "less" if "win" in kinds else "more" if "regression" in kinds else "within"


def _factor(a: float, b: float) -> float:
    if a:
        return b / a
    return math.inf if b > 0 else -math.inf if b < 0 else 1.0


def _measured_with(results: Results) -> dict[str, str]:
    """Return a file's versions, machines and settings by name; commas separate several values."""
    found: dict[str, dict[str, None]] = {}
    for cell in results.records:
        for name, value in _facts(cell).items():
            found.setdefault(name, {})[str(value)] = None
    return {name: ", ".join(values) for name, values in found.items()}


def _facts(cell: Cell) -> dict[str, Any]:
    stored = to_builtins(cell.environment)
    versions = {
        name: stored[name] for name in ("shardbench", "code", "commit", "python") if name in stored
    }
    machine = ("system", "machine", "cpu", "cores", "memory_gib")
    facts = versions | cell.environment.packages | {n: stored[n] for n in machine if n in stored}
    if cell.settings:
        facts["budget of a call [s]"] = f"{cell.settings.budget:g}"
        facts["seconds of timing a problem"] = f"{cell.settings.sampling.seconds:g}"
    return facts

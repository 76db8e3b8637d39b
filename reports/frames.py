"""Stored results as DataFrames: one row per cell, and one per quality, counter and phase of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.declarations import find_bound
from harness.errors import UsageError
from harness.storage.results import Damage, read_records
from reports.escaping import legible

DIFFERENT = "different decision"

_NAMES = ("cell", "family", "variant", "workload", "topology", "reference", "status")
_TEXTS = (
    *("summary", "source", "same_as", "purpose", "reason", "verdict", "verdict_reason"),
    *("decision", "fingerprint", "size_name"),
)
_NESTED = {
    "wall_s": ("wall_s", "median"),
    "cpu_s": ("cpu_s", "median"),
    "ratio": ("ratio", "value"),
    "ratio_low": ("ratio", "low"),
    "ratio_high": ("ratio", "high"),
    "pairs": ("ratio", "pairs"),
    "claim_before": ("claim", "before"),
    "claim_after": ("claim", "after"),
    "progress_done": ("progress", "done"),
    "progress_total": ("progress", "total"),
    "progress_elapsed_s": ("progress", "elapsed_s"),
    "budget_s": ("settings", "budget"),
}
_NUMBERS = ("gpus", "size", "projection_s", "peak_memory_bytes", "memory_before_bytes")
_FROM_BOUND = ("bound", "gap")
_KEYS = ("cell", "family", "variant", "problem")
_COLUMNS = {
    "qualities": (*_KEYS, "name", "value", "unit", "better", "primary", "meaning"),
    "counters": (*_KEYS, "name", "value", "meaning", "enough"),
    "phases": (*_KEYS, "name", "seconds", "share"),
}


@dataclass(frozen=True, slots=True)
class Results:
    """A results file as tables.

    `cells` has a row per cell: missing text is "" and missing numbers are NaN. Times are in
    seconds. `outcome` is the status, or the verdict where the cell is ok. A cell with a different
    decision has no ratio here, so that nothing can present it as a speed-up. `against` is the
    variant that a cell is compared with, one for all cells of a problem, and `machine` what
    measured them, "" where it is one machine for all; `bound` is the proven
    bound on its first quality, and `gap` how far that is from it, as a share of 1.
    `qualities`, `counters` and `phases` (CPU seconds) are long tables with a row per figure.
    `records` are the lines as they were read, `notes` what a reader must know about the file.
    """

    cells: pd.DataFrame
    qualities: pd.DataFrame
    counters: pd.DataFrame
    phases: pd.DataFrame
    records: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()


def read_results(path: Path) -> Results:
    """Read a JSON Lines results file.

    Later lines of a cell replace earlier ones, and a later comparison of a problem with another
    variant replaces the earlier one, with a note. A damaged line is left out with a note, and so is
    a last one that was cut short, as a killed sweep leaves it.

    Raises:
        UsageError: the file is unreadable, is of another schema, or holds no cell.
    """
    damaged: list[Damage] = []
    records: dict[str, Mapping[str, Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    machines: dict[tuple[str, str], str] = {}
    for record in map(legible, read_records(path, damaged.append)):
        row = _cell(record)
        records[row["cell"]] = record
        rows[row["cell"]] = row
        if row["machine"]:
            machines[row["family"], row["problem"]] = row["machine"]
    notes = [_note(damage) for damage in damaged]
    if not records:
        raise UsageError(f"Results file '{path}' holds no cell; {_why_empty(damaged)}.")
    notes += _drop_earlier_comparisons(rows)
    notes += _drop_other_machines(rows, machines)
    figures = [(row, records[cell]) for cell, row in rows.items()]
    return Results(
        cells=_frame_of_cells(list(rows.values())),
        qualities=_frame("qualities", (x for pair in figures for x in _qualities(*pair))),
        counters=_frame("counters", (x for pair in figures for x in _counters(*pair))),
        phases=_frame("phases", (x for pair in figures for x in _phases(*pair))),
        records=tuple(record for _, record in figures),
        notes=tuple(notes),
    )


def _drop_earlier_comparisons(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Keep the cells that are compared as the last one of their problem; say which ones go."""
    last = {(row["family"], row["problem"]): row["against"] for row in rows.values()}
    for (family, problem), against in last.items():
        found = [each for each in rows.values() if each["problem"] == problem]
        earlier = [e for e in found if e["family"] == family and e["against"] != against]
        for row in earlier:
            del rows[row["cell"]]
        if earlier:
            names = " and ".join(sorted({f"`{row['against']}`" for row in earlier}))
            yield (
                f"What was compared with {names} on `{problem}` is left out, because the last "
                f"comparison there is with `{against}`."
            )


def _drop_other_machines(
    rows: dict[str, dict[str, Any]], last: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    """Keep of each problem what the machine that measured it last has measured; say what goes."""
    for (family, problem), machine in last.items():
        found = [each for each in rows.values() if each["problem"] == problem]
        others = [e for e in found if e["family"] == family and e["machine"] not in ("", machine)]
        for row in others:
            del rows[row["cell"]]
        if others:
            yield (
                f"What another machine measured on `{problem}` is left out, because machine "
                f"{machine} did so last."
            )
    several = {row["machine"] for row in rows.values()} - {""}
    if len(several) > 1:
        yield (
            f"The cells are of {len(several)} machines; each problem is of one, and times are "
            "compared within one machine only."
        )
    else:
        for row in rows.values():
            row["machine"] = ""


def _note(damage: Damage) -> str:
    why = "was cut short" if damage.torn else damage.why
    return f"Line {damage.line} of '{damage.path.name}' {why} and is left out."


def _why_empty(damaged: Sequence[Damage]) -> str:
    if not damaged:
        return "run a sweep that writes to it first"
    if len(damaged) > 1:
        return f"its {len(damaged)} lines are damaged"
    return f"its only line {'was cut short' if damaged[0].torn else damaged[0].why}"


def _cell(record: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: record[name] for name in _NAMES}
    row |= {name: record.get(name) or "" for name in _TEXTS}
    row |= {name: _number(record.get(name)) for name in _NUMBERS}
    row["against"] = record.get("against") or row["reference"]
    for name, (outer, inner) in _NESTED.items():
        row[name] = _number((record.get(outer) or {}).get(inner))
    for outer, inner in (("claim", "unit"), ("claim", "conditions"), ("progress", "unit")):
        row[f"{outer}_{inner}"] = (record.get(outer) or {}).get(inner) or ""
    row |= _bound_and_gap(record)
    row["problem"] = row["cell"].partition("@")[2]
    row["machine"] = (record.get("environment") or {}).get("machine") or ""
    return row


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _bound_and_gap(record: Mapping[str, Any]) -> dict[str, float]:
    bound = find_bound(record.get("qualities") or [])
    values = record.get("quality") or {}
    if bound is None or values.get(bound.name) is None:
        return dict.fromkeys(_FROM_BOUND, float("nan"))
    return {"bound": float(values[bound.name]), "gap": bound.gap(values)}


def _frame_of_cells(rows: list[dict[str, Any]]) -> pd.DataFrame:
    cells = pd.DataFrame(rows)
    numeric = [*_NUMBERS, *_NESTED, *_FROM_BOUND]
    cells[numeric] = cells[numeric].astype("float64")
    differs = cells["decision"] == "different"
    cells.loc[differs, ["ratio", "ratio_low", "ratio_high"]] = float("nan")
    outcome = cells["verdict"].where(cells["decision"] != "reference", "reference")
    outcome = outcome.where(~differs, DIFFERENT)
    cells["outcome"] = outcome.where(cells["status"] == "ok", cells["status"])
    cells.loc[cells["outcome"] == "", "outcome"] = "not compared"
    # A call that was stopped tells nothing of its problem; the others on it know how large it is.
    problems = cells.groupby(["family", "problem"])
    cells["size"] = problems["size"].transform("first")
    cells["size_name"] = problems["size_name"].transform("max")
    return cells


def _frame(kind: str, rows: Iterator[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(_COLUMNS[kind]))


def _keys(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _KEYS}


def _qualities(row: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    values = record.get("quality") or {}
    for position, quality in enumerate(record.get("qualities") or ()):
        if values.get(quality["name"]) is not None:
            yield _keys(row) | {
                "name": quality["name"],
                "value": float(values[quality["name"]]),
                "unit": quality.get("unit", ""),
                "better": quality.get("better", "lower"),
                "primary": position == 0,
                "meaning": quality.get("meaning", ""),
            }


def _counters(row: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    meanings = record.get("counter_meanings") or {}
    held = record.get("counters") or {}
    for name, value in held.items():
        if value is not None:
            enough = (record.get("counter_enough") or {}).get(name)
            if isinstance(enough, str):
                enough = held.get(enough)
            yield _keys(row) | {
                "name": name,
                "value": float(value),
                "meaning": meanings.get(name, ""),
                "enough": float("nan") if enough is None else float(enough),
            }


def _phases(row: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    phases = {name: float(s) for name, s in (record.get("phases") or {}).items() if s is not None}
    whole = sum(phases.values())
    for name, spent in phases.items():
        share = spent / whole if whole else float("nan")
        yield _keys(row) | {"name": name, "seconds": spent, "share": share}

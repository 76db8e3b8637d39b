"""Stored results as DataFrames: one row per cell, and one per quality, counter and phase of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.declarations import find_bound
from harness.errors import UsageError
from harness.goals import MEASURES

SCHEMA = 1
STATUSES = ("ok", "over budget", "not installed", "not applicable", "failed")
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
}
_MAPPINGS = (
    *("quality", "counters", "phases", "facts", "environment"),
    *("counter_meanings", "counter_enough"),
)
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
    variant that a cell is compared with, one for all cells of a problem; `bound` is the proven
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
    variant replaces the earlier one, with a note. A last line that was cut short, as a killed sweep
    leaves it, is skipped with a note.

    Raises:
        UsageError: the file is unreadable or holds no cell, or a line is malformed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"Results file '{path}' cannot be read: {error.strerror}.") from None
    lines = content.split(b"\n")
    torn = len(lines) if lines[-1].strip() else None
    records: dict[str, Mapping[str, Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    notes = []
    for index, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"Line {index} of results file '{path}'"
        try:
            record = json.loads(line)
        except ValueError as error:
            if index == torn:
                notes.append(f"Line {index} of '{path.name}' was cut short and is left out.")
                continue
            raise UsageError(f"{where} is not JSON: {error}.") from None
        row = _cell(record, where)
        records[row["cell"]] = record
        rows[row["cell"]] = row
    if not records:
        raise UsageError(f"Results file '{path}' holds no cell; {_why_empty(notes)}.")
    notes += _drop_earlier_comparisons(rows)
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


def _why_empty(notes: list[str]) -> str:
    return "its only line was cut short" if notes else "run a sweep that writes to it first"


def _cell(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise UsageError(f"{where} must be a JSON object.")
    if record.get("schema") != SCHEMA:
        raise UsageError(f"{where} has schema {record.get('schema')!r}; this reads {SCHEMA}.")
    row: dict[str, Any] = {}
    for name in _NAMES:
        if not isinstance(record.get(name), str) or not record[name]:
            raise UsageError(f"{where} must have '{name}' as a text.")
        row[name] = record[name]
    if row["status"] not in STATUSES:
        raise UsageError(
            f"{where} has status '{row['status']}'; allowed are: {', '.join(STATUSES)}."
        )
    row |= {name: _text(record.get(name), name, where) for name in _TEXTS}
    row |= {name: _number(record.get(name), name, where) for name in _NUMBERS}
    row["against"] = _text(record.get("against"), "against", where) or row["reference"]
    for name, (outer, inner) in _NESTED.items():
        figures = _mapping(record.get(outer), outer, where)
        row[name] = _number(figures.get(inner), f"{outer}.{inner}", where)
    for outer, inner in (("claim", "unit"), ("claim", "conditions"), ("progress", "unit")):
        figures = _mapping(record.get(outer), outer, where)
        row[f"{outer}_{inner}"] = _text(figures.get(inner), f"{outer}.{inner}", where)
    for name in _MAPPINGS:
        _mapping(record.get(name), name, where)
    for name, enough in (record.get("counter_enough") or {}).items():
        if not isinstance(enough, str):  # the name of the counter that tells it
            _number(enough, f"counter_enough.{name}", where)
    for name in ("quality", "counters", "phases"):
        for key, value in (record.get(name) or {}).items():
            _number(value, f"{name}.{key}", where)
    listed = record.get("qualities") or []
    if not isinstance(listed, list) or not all(_is_named(quality) for quality in listed):
        raise UsageError(f"{where} must have 'qualities' as a list of objects with a 'name'.")
    row |= _bound_and_gap(record)
    goals = record.get("goals") or []
    if not isinstance(goals, list) or not all(map(_is_goal, goals)):
        raise UsageError(f"{where} must have 'goals' as a list of goals, each with its measure.")
    if row["gpus"] != row["gpus"]:
        raise UsageError(f"{where} must have 'gpus' as a number.")
    planner, _, row["problem"] = row["cell"].partition("@")
    if planner != f"{row['family']}/{row['variant']}" or not row["problem"]:
        raise UsageError(f"{where} must have 'cell' as family/variant@problem.")
    return row


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _is_goal(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("measure") in MEASURES
        and all(isinstance(value.get(name), str) for name in ("text", "problem", "variant"))
        and isinstance(value.get("limit"), int | float)
    )


def _bound_and_gap(record: Mapping[str, Any]) -> dict[str, float]:
    bound = find_bound(record.get("qualities") or [])
    values = record.get("quality") or {}
    if bound is None or values.get(bound.name) is None:
        return dict.fromkeys(_FROM_BOUND, float("nan"))
    return {"bound": float(values[bound.name]), "gap": bound.gap(values)}


def _text(value: Any, name: str, where: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise UsageError(f"{where} must have '{name}' as a text or null.")


def _number(value: Any, name: str, where: str) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{where} must have '{name}' as a number or null.")
    return float(value)


def _mapping(value: Any, name: str, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{where} must have '{name}' as an object or null.")
    return value


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

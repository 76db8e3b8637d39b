"""The report's tables: views and cells with every number written for people."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from reports.formatting import MISSING, count, interval, number, percent, quantity, seconds
from reports.frames import DIFFERENT, Results
from reports.shortfalls import progress
from reports.views import (
    FamilyView,
    counts,
    environments,
    ladder,
    ladder_by_problem,
    phase_times,
    rows_of,
)

_BAD = (DIFFERENT, "failed", "over budget", "not installed")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `code` holds names as written on the command line, `number` sorts by value."""

    title: str
    kind: Literal["text", "number", "code"] = "text"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a table says in one place; `sort` orders numbers, `tone` sets apart what went wrong."""

    text: str
    sort: float = math.nan
    tone: Literal["", "bad", "good"] = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its heading row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]


Row = Sequence[Entry | str]


def _table(columns: Iterable[Column | str], rows: Iterable[Row]) -> Table:
    return Table(
        tuple(Column(column) if isinstance(column, str) else column for column in columns),
        tuple(tuple(Entry(e) if isinstance(e, str) else e for e in row) for row in rows),
    )


def _code(title: str) -> Column:
    return Column(title, "code")


def _number(title: str) -> Column:
    return Column(title, "number")


def _time(value: float) -> Entry:
    return Entry(seconds(value), value)


def _figure(value: float) -> Entry:
    return Entry(number(value), value)


def _outcome(text: str) -> Entry:
    return Entry(text, tone="bad" if text in _BAD else "good" if text == "faster" else "")


def problems_table(family: FamilyView, results: Results) -> Table:
    """The problems, why each is there, and the facts about it."""
    found: dict[str, Row] = {}
    for record, row in zip(results.records, rows_of(results.cells), strict=True):
        facts = [_fact(name, value) for name, value in (record.get("facts") or {}).items()]
        if row["family"] == family.name and (facts or row["problem"] not in found):
            found[row["problem"]] = (row["problem"], row["purpose"], "; ".join(facts))
    return _table((_code("problem"), "why it is here", "facts"), found.values())


def _fact(name: str, value: Any) -> str:
    return f"{name} {number(value)}" if isinstance(value, int | float) else f"{name}: {value}"


def ladder_table(family: FamilyView) -> Table:
    """The ladder on its problem, claims beside measurements."""
    rows: list[Row] = []
    for row in rows_of(ladder(family)):
        unit = row["published_unit"]
        step = MISSING
        if not math.isnan(row["published_after"]):
            step = (
                f"{quantity(row['published_before'], unit)} → "
                f"{quantity(row['published_after'], unit)}"
            )
        rows.append(
            (
                row["variant"],
                Entry(step, row["published_after"]),
                _figure(row["published_share"]),
                _figure(row["ratio"]),
                Entry(interval(row["low"], row["high"]), row["low"]),
                _time(row["cpu_s"]),
                _outcome(row["outcome"]),
            )
        )
    columns = (
        *(_code("variant"), _number("published step"), _number("published share")),
        *(_number("measured share"), _number("interval"), _number("CPU time")),
        "outcome",
    )
    return _table(columns, rows)


def ladder_by_problem_table(family: FamilyView) -> Table:
    """The ladder's measured shares on every problem."""
    shares = ladder_by_problem(family)
    rows: list[Row] = [
        (str(problem), *(_figure(float(value)) for value in row))
        for problem, row in zip(shares.index, shares.to_numpy(), strict=True)
    ]
    return _table((_code("problem"), *(_number(str(name)) for name in shares.columns)), rows)


def growth_table(family: FamilyView) -> Table:
    """The fitted exponents of every variant and sweep."""
    rows: list[Row] = [
        (
            row["variant"],
            row["sweep"],
            Entry(count(row["sizes"]), row["sizes"]),
            Entry(f"{count(row['smallest'])} to {count(row['largest'])}", row["largest"])
            if row["sizes"]
            else Entry(MISSING),
            Entry(
                MISSING if math.isnan(row["exponent"]) else f"{row['exponent']:.2f}",
                row["exponent"],
            ),
            Entry("too few sizes", -math.inf)
            if math.isnan(row["exponent"])
            else Entry(f"{row['low']:.2f} to {row['high']:.2f}", row["low"]),
        )
        for row in rows_of(family.exponents)
    ]
    columns = (
        *(_code("variant"), _code("problems"), _number("sizes"), _number("range")),
        *(_number("exponent"), _number("95 % interval")),
    )
    return _table(columns, rows)


def quality_table(family: FamilyView) -> Table:
    """Time and every quality on the problem with most decisions of their own."""
    found = family.qualities[family.qualities["problem"] == family.quality_problem]
    units, values = _qualities(found)
    rows: list[Row] = [
        (
            variant,
            cell["decision"],
            _time(cell["cpu_s"]),
            _figure(cell["ratio"]),
            *(_figure(values.get((cell["cell"], name), math.nan)) for name in units),
        )
        for variant, cell in family.on(family.quality_problem).items()
        if (cell["cell"], next(iter(units), "")) in values
    ]
    columns = (_code("variant"), Column("decision"), _number("CPU time"), _number("share"))
    return _table((*columns, *_quality_columns(units)), rows)


def _qualities(found: pd.DataFrame) -> tuple[dict[str, str], dict[tuple[str, str], float]]:
    """Units by quality, and values by cell and quality."""
    rows = rows_of(found)
    units = {row["name"]: row["unit"] for row in rows}
    return units, {(row["cell"], row["name"]): row["value"] for row in rows}


def _quality_columns(units: Mapping[str, str]) -> list[Column]:
    return [_number(f"{name} [{unit}]" if unit else name) for name, unit in units.items()]


def phases_table(family: FamilyView) -> Table:
    """Seconds and shares of every phase, a row per variant."""
    times = phase_times(family)
    names = list(times["name"].unique())
    rows: list[Row] = []
    for variant, group in times.groupby("variant", sort=False):
        held = {row["name"]: row for row in rows_of(group)}
        whole = float(group["seconds"].sum())
        phases = [_phase(held.get(name)) for name in names]
        rows.append((str(variant), _time(whole), *phases))
    return _table((_code("variant"), _number("whole"), *map(_number, names)), rows)


def _phase(row: Mapping[str, Any] | None) -> Entry:
    if row is None:
        return Entry(MISSING)
    return Entry(f"{seconds(row['seconds'])} ({percent(row['share'])})", row["seconds"])


def counters_table(family: FamilyView) -> Table:
    """The counters of every variant on the problem of the ladder."""
    table = counts(family)
    rows: list[Row] = [
        (str(variant), *(Entry(count(float(value)), float(value)) for value in row))
        for variant, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    return _table((_code("variant"), *(_number(str(name)) for name in table.columns)), rows)


def cells_table(family: FamilyView) -> Table:
    """Every cell of the family, with all of its qualities."""
    units, values = _qualities(family.qualities)
    rows: list[Row] = []
    for row in rows_of(family.cells):
        rows.append(
            (
                row["cell"],
                Entry(count(row["size"]), row["size"]),
                _outcome(row["outcome"]),
                _figure(row["ratio"]),
                Entry(interval(row["ratio_low"], row["ratio_high"]), row["ratio_low"]),
                _time(row["cpu_s"]),
                _time(row["wall_s"]),
                row["decision"] or MISSING,
                *(_figure(values.get((row["cell"], name), math.nan)) for name in units),
                row["fingerprint"][:10] or MISSING,
                _remark(row),
            )
        )
    columns: tuple[Column | str, ...] = (
        *(_code("cell"), _number("size"), Column("outcome"), _number("share of reference")),
        *(_number("interval"), _number("CPU time"), _number("wall time"), Column("decision")),
        *_quality_columns(units),
        *(_code("fingerprint"), Column("remark")),
    )
    return _table(columns, rows)


def _remark(row: Mapping[str, Any]) -> str:
    if row["status"] == "over budget":
        return f"{row['reason']}{progress(row)}".strip()
    return str(row["reason"] or row["verdict_reason"])


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
        *((name, *(str(e.get(name, MISSING)) for e in held)) for name in ("cpu", "cores", "seed")),
        ("load", *(_range(e["loads"]) for e in held)),
        ("started", *(_range(e["starts"]) for e in held)),
    ]
    titles = [f"environment {n}" if len(held) > 1 else "value" for n in range(1, len(held) + 1)]
    return _table(("what", *titles), rows)


def _range(values: Sequence[float] | Sequence[str]) -> str:
    if not values:
        return MISSING
    low, high = (v if isinstance(v, str) else number(float(v)) for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def sources_table(family: FamilyView) -> Table:
    """Where every variant comes from, and what it must decide."""
    last = {row["variant"]: row for row in rows_of(family.cells)}
    rows = [(name, row["summary"], _must(row), row["source"]) for name, row in last.items()]
    return _table((_code("variant"), "what it does", "must decide", "source"), rows)


def _must(row: Mapping[str, Any]) -> str:
    if row["variant"] == row["reference"]:
        return "it is the reference"
    return f"the same as {row['same_as']}" if row["same_as"] else "on its own"

"""The report's tables: views and cells with every number written for people."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.measuring.goals import MIB
from reports.findings.shortfalls import progress
from reports.formatting import MISSING, count, gap, interval, number, percent, quantity, seconds
from reports.frames import DIFFERENT, Results
from reports.views.family import (
    FamilyView,
    counts,
    ladder,
    ladder_by_problem,
    phase_times,
    rows_of,
)

_BAD = (DIFFERENT, "failed", "over budget", "not installed", "missed", "projected to be missed")
_GOOD = ("faster", "met")
_MEMORY = ("peak memory", "memory of the call")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `code` holds names as written on the command line, `number` sorts by value."""

    title: str
    kind: Literal["text", "number", "code"] = "text"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a table says in one place.

    `sort` orders numbers, `tone` sets apart what went wrong, and `link` is a file of the report.
    """

    text: str
    sort: float = math.nan
    tone: Literal["", "bad", "good"] = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its heading row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]


Row = Sequence[Entry | str]


def new_table(columns: Iterable[Column | str], rows: Iterable[Row]) -> Table:
    """Return a table of columns and rows; a text stands for a column or an entry of no kind."""
    return Table(
        tuple(Column(column) if isinstance(column, str) else column for column in columns),
        tuple(tuple(Entry(e) if isinstance(e, str) else e for e in row) for row in rows),
    )


def code_column(title: str) -> Column:
    """Return a column of names as they are written on the command line."""
    return Column(title, "code")


def number_column(title: str) -> Column:
    """Return a column that is sorted by value."""
    return Column(title, "number")


def time_entry(value: float) -> Entry:
    """Write a time in seconds."""
    return Entry(seconds(value), value)


def figure_entry(value: float) -> Entry:
    """Write a figure with three significant digits."""
    return Entry(number(value), value)


def outcome_entry(text: str) -> Entry:
    """Write an outcome of a cell or of a goal, with its tone."""
    return Entry(text, tone="bad" if text in _BAD else "good" if text in _GOOD else "")


def problems_table(family: FamilyView, results: Results) -> Table:
    """The problems, why each is there, the facts about it, and the machine where it is not one."""
    several = bool((results.cells["machine"] != "").any())
    found: dict[str, Row] = {}
    for stored, row in zip(results.records, rows_of(results.cells), strict=True):
        facts = [_fact(name, value) for name, value in stored.facts.items()]
        if row["family"] == family.name and (facts or row["problem"] not in found):
            where = [row["machine"]] * several
            found[row["problem"]] = (row["problem"], *where, row["purpose"], "; ".join(facts))
    columns = (code_column("problem"), *[code_column("machine")] * several)
    return new_table((*columns, "why it is here", "facts"), found.values())


def _fact(name: str, value: Any) -> str:
    return f"{name} {number(value)}" if isinstance(value, int | float) else f"{name}: {value}"


def ladder_table(family: FamilyView) -> Table:
    """The ladder on its problem, claims beside measurements, and the decision's first quality."""
    qualities = Qualities(family, family.ladder_problem, most=True)
    cells = family.on(family.ladder_problem)
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
                figure_entry(row["published_share"]),
                figure_entry(row["ratio"]),
                Entry(interval(row["low"], row["high"]), row["low"]),
                time_entry(row["cpu_s"]),
                outcome_entry(row["outcome"]),
                *qualities.entries(cells.get(row["variant"])),
            )
        )
    columns: tuple[Column | str, ...] = (
        *(
            code_column("variant"),
            number_column("published step"),
            number_column("published share"),
        ),
        *(number_column("measured share"), number_column("interval"), number_column("CPU time")),
        "outcome",
        *qualities.columns,
    )
    return new_table(columns, rows)


def ladder_by_problem_table(family: FamilyView) -> Table:
    """The ladder's measured shares on every problem."""
    shares = ladder_by_problem(family)
    rows: list[Row] = [
        (str(problem), *(figure_entry(float(value)) for value in row))
        for problem, row in zip(shares.index, shares.to_numpy(), strict=True)
    ]
    return new_table(
        (code_column("problem"), *(number_column(str(name)) for name in shares.columns)), rows
    )


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
            Entry("too few sizes")
            if math.isnan(row["exponent"])
            else Entry(f"{row['low']:.2f} to {row['high']:.2f}", row["low"]),
            Entry(count(row["over_budget"]), row["over_budget"]),
        )
        for row in rows_of(family.exponents)
    ]
    columns = (
        *(
            code_column("variant"),
            code_column("problems"),
            number_column("sizes"),
            number_column("range"),
        ),
        *(number_column("exponent"), number_column("95 % interval")),
        number_column("over budget from"),
    )
    return new_table(columns, rows)


def quality_table(family: FamilyView) -> Table:
    """Time and every quality on the problem with most decisions of their own."""
    qualities = Qualities(family, family.quality_problem)
    rows: list[Row] = [
        (
            variant,
            cell["decision"],
            time_entry(cell["cpu_s"]),
            figure_entry(cell["ratio"]),
            *qualities.entries(cell),
        )
        for variant, cell in family.on(family.quality_problem).items()
        if qualities.has_first(cell)
    ]
    columns = (code_column("variant"), "decision", number_column("CPU time"))
    return new_table((*columns, number_column("share"), *qualities.columns), rows)


class Qualities:
    """The columns of all qualities of a family, on one problem or all, and of the gap.

    `most` takes in the first ones only, which are the first quality, its bound and the gap.
    """

    def __init__(self, family: FamilyView, problem: str = "", most: bool = False) -> None:
        found = rows_of(family.qualities)
        found = [row for row in found if not problem or row["problem"] == problem]
        self._values = {(row["cell"], row["name"]): row["value"] for row in found}
        units = {row["name"]: row["unit"] for row in found}
        self._first = next(iter(units), "")
        bound = family.bound
        if most:
            shown = {self._first, bound.name if bound else ""}
            units = {name: unit for name, unit in units.items() if name in shown}
        # A gap that the family gives is the one that is shown anyway, in per cent.
        self._names = [name for name in units if not (bound and name == "gap")]
        self._gap = [number_column("gap")] if bound else []
        titles = (f"{name} [{units[name]}]" if units[name] else name for name in self._names)
        self.columns = (*(number_column(title) for title in titles), *self._gap)

    def has_first(self, cell: Mapping[str, Any]) -> bool:
        """Whether a cell has the first quality."""
        return (cell["cell"], self._first) in self._values

    def entries(self, cell: Mapping[str, Any] | None) -> tuple[Entry, ...]:
        """Return what a cell has in these columns, where there is one."""
        if cell is None:
            return (Entry(MISSING),) * len(self.columns)
        values = (self._values.get((cell["cell"], name), math.nan) for name in self._names)
        gaps = (Entry(gap(cell["gap"]), cell["gap"]) for _ in self._gap)
        return (*map(figure_entry, values), *gaps)


def phases_table(family: FamilyView) -> Table:
    """Seconds and shares of every phase, a row per variant."""
    times = phase_times(family)
    names = list(times["name"].unique())
    rows: list[Row] = []
    for variant, group in times.groupby("variant", sort=False):
        held = {row["name"]: row for row in rows_of(group)}
        whole = float(group["seconds"].sum())
        phases = [_phase(held.get(name)) for name in names]
        rows.append((str(variant), time_entry(whole), *phases))
    return new_table(
        (code_column("variant"), number_column("whole"), *map(number_column, names)), rows
    )


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
    return new_table(
        (code_column("variant"), *(number_column(str(name)) for name in table.columns)), rows
    )


def cells_table(family: FamilyView) -> Table:
    """Every cell of the family, with all of its qualities."""
    qualities = Qualities(family)
    several = len(set(family.against.values())) > 1
    machines = bool((family.cells["machine"] != "").any())
    weighed = bool(family.cells["peak_memory_bytes"].notna().any())
    rows: list[Row] = [
        (
            row["cell"],
            Entry(count(row["size"]), row["size"]),
            outcome_entry(row["outcome"]),
            *[row["machine"]] * machines,
            *[row["against"]] * several,
            figure_entry(row["ratio"]),
            Entry(interval(row["ratio_low"], row["ratio_high"]), row["ratio_low"]),
            time_entry(row["cpu_s"]),
            time_entry(row["wall_s"]),
            row["decision"] or MISSING,
            *qualities.entries(row),
            *(_memory(row) if weighed else ()),
            row["fingerprint"][:10] or MISSING,
            _remark(row),
        )
        for row in rows_of(family.cells)
    ]
    columns: tuple[Column | str, ...] = (
        *(code_column("cell"), number_column("size"), "outcome"),
        *[code_column("machine")] * machines,
        *[code_column("compared with")] * several,
        number_column("share of its time" if several else "share of reference"),
        *(number_column("interval"), number_column("CPU time"), number_column("wall time")),
        "decision",
        *qualities.columns,
        *(number_column(f"{title} [MiB]") for title in _MEMORY if weighed),
        *(code_column("fingerprint"), "remark"),
    )
    return new_table(columns, rows)


def _memory(row: Mapping[str, Any]) -> tuple[Entry, Entry]:
    """Peak and growth of the checked call; of a call over budget the least that they can be."""
    peak = row["peak_memory_bytes"] / MIB
    grown = peak - row["memory_before_bytes"] / MIB
    sign = "≥ " if row["status"] == "over budget" else ""
    texts = (f"{sign}{number(value)}" if value == value else MISSING for value in (peak, grown))
    first, second = texts
    return Entry(first, peak), Entry(second, grown)


def _remark(row: Mapping[str, Any]) -> str:
    if row["status"] == "over budget":
        return f"{row['reason']}{progress(row)}".strip()
    return str(row["reason"] or row["verdict_reason"])

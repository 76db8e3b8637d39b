"""Cells: one variant on one problem, and all that was measured, counted and decided there."""

import math
import numbers
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, field, to_builtins

from harness.model.declared import LEAST, Amount, Count, Name, Number, Size, check_sizes
from harness.model.errors import UsageError, printable
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.model.overview import Goal, OverviewRow
from harness.model.quality import Bound, Quality, find_bound
from harness.model.settings import Settings

SCHEMA = 1

Status = Literal["ok", "over budget", "not installed", "not applicable", "failed"]
Decision = Literal["reference", "same", "different", "own"]
Verdict = Literal["faster", "slower", "same", "inconclusive"]
Way = Literal["", "turns", "turns in one process", "side by side", "one core each"]

_MOST_NESTED = 20


class Summary(Struct, frozen=True):
    """Times of a call in seconds: each sample, and their median."""

    median: Amount
    samples: tuple[Amount, ...] = ()

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Summary | None":
        """Summarise samples; None without any."""
        return cls(statistics.median(samples), tuple(samples)) if samples else None


class Ratio(Struct, frozen=True):
    """Time of a variant over time of the reference, with its interval at 99 %; lower is better.

    `pairs` is how many pairs of calls it was estimated from, and `processes` how many processes, or
    sets of them side by side, these were made in. `way` is how the calls were made, empty in files
    from before there were several. `pair_spread` and `process_spread` are standard deviations of
    the ratio's logarithm: of pairs within a process, and of processes beyond what that explains.
    The interval is infinitely wide for a single pair.
    """

    value: Annotated[float, Meta(ge=LEAST, le=1 / LEAST)]
    low: Amount = 0.0
    high: Annotated[float, Meta(gt=0)] = math.inf
    pairs: Size = 0
    processes: Size = 1
    way: Way = ""
    pair_spread: Amount | None = None
    process_spread: Amount | None = None

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError("a value must lie within its interval")

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the interval."""
        return self.low, self.high


class CountedWork(Struct, frozen=True, omit_defaults=True):
    """The work of one call, counted: the same on any machine, with the same versions.

    `python_calls` are calls of Python functions and of built-in ones, those of other threads left
    out. `spread` is by how much two such counts differed, None of one alone. `built_in_share` is
    the share of the time in built-in functions; work inside of them is not counted.
    """

    python_calls: Count
    spread: Count | None = 0
    built_in_share: Annotated[float, Meta(ge=0, le=1)] = 0.0


class Claim(Struct, frozen=True):
    """A figure published with an optimisation: `before` and `after` in `unit`, on `conditions`."""

    before: Number
    after: Number
    unit: str = ""
    conditions: str = ""

    @property
    def ratio(self) -> float:
        """The remaining share of the cost: after / before, lower is better."""
        return self.after / self.before


class RankTable(Struct, frozen=True):
    """Figures of a decision by rank: `rows` has one for each rank, in the order of `columns`.

    `capacities` has for each column the most that a rank can have, None without a limit. `bar`
    names the column that is drawn, and that makes ranks heavy or light.
    """

    columns: tuple[Name, ...]
    rows: tuple[tuple[Number, ...], ...]
    capacities: tuple[Number | None, ...]
    bar: Name

    def __post_init__(self) -> None:
        lengths = {len(row) for row in self.rows} | {len(self.capacities)}
        if lengths != {len(self.columns)} or self.bar not in self.columns:
            raise ValueError(
                "a rank table must have a figure in each row and a capacity for each of its "
                f"columns, which are {', '.join(self.columns)}, and a bar that is one of them"
            )
        if not all(math.isfinite(value) for row in self.rows for value in row):
            raise ValueError("a rank table must hold numbers, neither infinities nor NaN")


class FrontPoint(Struct, frozen=True):
    """A decision near another one: GiB that it moves, its first quality, and the bound on that."""

    moved_gib: Amount
    value: Number
    bound: Number | None = None


class Progress(Struct, frozen=True):
    """How far a call has come: `done` of `total` units of work; `total` None while unknown.

    `elapsed_s` is how long that took, where it is known. `more_follows` says that the units are of
    one step of the call, and that there are others after it.
    """

    done: Size
    total: Size | None = None
    unit: str = ""
    elapsed_s: Amount | None = None
    more_follows: bool = False


class Environment(Struct, frozen=True, omit_defaults=True):
    """The code, versions and machine of a measurement; unknown fields are None.

    `code` is a hash of the harness and all families, `family_code` of the cell's family alone.
    `machine` is a hash that distinguishes machines: times are compared within one only. `load` is
    the one-minute load average per core.
    """

    shardbench: str | None = None
    code: str | None = None
    family_code: str | None = None
    python: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    system: str | None = None
    machine: str | None = None
    cpu: str | None = None
    cores: int | None = None
    memory_gib: float | None = None
    load: Number | None = None
    seed: int | None = None
    started: str | None = None


class Cell(Struct, kw_only=True):
    """One variant on one problem; the fields of a stored line.

    Times are seconds, `ratio` is CPU time over that of `against`, the variant that this comparison
    was with (lower is better); `reference` is the family's. `projection_s` is the time that an
    over-budget call would have taken, projected from its progress. `peak_memory_bytes` is the most
    resident memory during the checked call, `memory_before_bytes` what there was just before it;
    an over-budget call had that peak or a higher one. `output` is the last that the child process
    of a failed cell printed, with escapes for control characters. `front` has decisions that move
    more and more of this one.
    """

    id: CellId
    reference: Name
    against: str = ""
    summary: str = ""
    source: str = ""
    same_as: str | None = None
    purpose: str = ""
    claim: Claim | None = None
    status: Status
    reason: str | None = None
    output: str | None = None
    wall_s: Summary | None = None
    cpu_s: Summary | None = None
    thread_cpu_s: Summary | None = None
    ratio: Ratio | None = None
    verdict: Verdict | None = None
    verdict_reason: str = ""
    decision: Decision | None = None
    fingerprint: str | None = None
    quality: dict[str, Number] = field(default_factory=dict)
    counters: dict[str, Count] = field(default_factory=dict)
    phases: dict[str, Amount] = field(default_factory=dict)
    work: CountedWork | None = None
    peak_memory_bytes: Size | None = None
    memory_before_bytes: Size | None = None
    ranks: RankTable | None = None
    front: tuple[FrontPoint, ...] = ()
    progress: Progress | None = None
    projection_s: Amount | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    size_name: str | None = None
    size: Number | None = None
    qualities: list[Quality] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    overview: list[OverviewRow] = field(default_factory=list)
    counter_meanings: dict[str, str] = field(default_factory=dict)
    counter_enough: dict[str, Number | str] = field(default_factory=dict)
    settings: Settings | None = None
    environment: Environment = Environment()

    def __post_init__(self) -> None:
        self.against = self.against or self.reference
        times = {name: getattr(self, name) for name in ("wall_s", "cpu_s", "thread_cpu_s")}
        medians = {name: summary.median for name, summary in times.items() if summary}
        sizes = {"size": self.size, "projection_s": self.projection_s}
        for figures in (sizes, medians, self.quality, self.counters, self.phases, self.facts):
            check_sizes(figures)

    @property
    def family(self) -> str:
        """The family's name."""
        return self.id.family

    @property
    def variant(self) -> str:
        """The variant's name."""
        return self.id.variant

    @property
    def problem(self) -> ProblemId:
        """The problem's id."""
        return self.id.problem

    @property
    def bound(self) -> Bound | None:
        """Which of its qualities is a proven bound on its first one."""
        return find_bound(self.qualities)

    def record(self) -> dict[str, Any]:
        """Return the cell in JSON types, as it is stored."""
        held = to_builtins(self, enc_hook=_plain_number)
        del held["id"]
        problem = self.problem
        named = {"cell": str(self.id), "family": self.family, "variant": self.variant}
        placed = {"workload": str(problem.workload), "topology": problem.topology}
        return {**named, **placed, "gpus": problem.gpus, **held, "schema": SCHEMA}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Cell":
        """Return the cell of a stored record; null stands for an absent field.

        Texts get escapes for what has no glyph: no file and no terminal can hold all of them.
        Raises ValueError where a field is missing or wrong, or the id contradicts the others.
        """
        held = legible(record)
        line = convert(held, _Identity)
        try:
            problem = ProblemId(WorkloadSpec.parse(line.workload), line.topology, line.gpus)
            cell_id = CellId(line.family, line.variant, problem)
            same = CellId.parse(line.cell) == cell_id
        except UsageError as error:
            raise ValueError(str(error)) from None
        if not same:
            raise ValueError(f"'cell' must be the id of what the line says, '{cell_id}'")
        return convert(held | {"id": asdict(cell_id)}, cls)


class _Identity(Struct):
    """The fields of a stored line that make up the id of its cell."""

    cell: Name
    family: Name
    variant: Name
    workload: Name
    topology: Name
    gpus: Annotated[int, Meta(ge=1, le=2**63 - 1)]


def legible(value: Any, most_nested: int = _MOST_NESTED) -> Any:
    """Return a value of JSON without nulls in its objects, with escapes for what has no glyph.

    Among that are marks that turn the direction of writing around, and half surrogates, which no
    file can hold. Line breaks stay. Values nested beyond all sense are left out.
    """
    if isinstance(value, str):
        return "\n".join(map(printable, value.split("\n")))
    if not isinstance(value, dict | list):
        return value
    if not most_nested:
        return "..."
    if isinstance(value, list):
        return [legible(item, most_nested - 1) for item in value]
    return {
        legible(name): legible(item, most_nested - 1)
        for name, item in value.items()
        if item is not None
    }


def _plain_number(value: Any) -> Any:
    """Return a number of numpy as Python's."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def by_problem(cells: Iterable[Cell]) -> dict[ProblemId, dict[str, Cell]]:
    """Return the last cell of each variant by problem."""
    found: dict[ProblemId, dict[str, Cell]] = {}
    for cell in cells:
        found.setdefault(cell.problem, {})[cell.variant] = cell
    return found


def projected_speedup(cell: Cell, against: Cell) -> float | None:
    """Return a cell's speed relative to one that was stopped over its budget, as a factor.

    It is the projection of that one over the median wall time of this one: no measurement, to be
    shown as a projection and never as a verdict. None where there is no projection.
    """
    if against.status != "over budget" or cell.status != "ok":
        return None
    if not against.projection_s or not cell.wall_s or not cell.wall_s.median:
        return None
    return against.projection_s / cell.wall_s.median

"""Cells: the results of one variant on one problem."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, field, to_builtins

from harness.model.declared import LEAST, Amount, Count, Name, Number, Size, check_sizes
from harness.model.errors import UsageError
from harness.model.files import plain_number
from harness.model.ids import CellId, ProblemId
from harness.model.quality import Bound, Quality, find_bound
from harness.model.settings import Settings
from harness.model.statement import Claim

SCHEMA = 1

Status = Literal["ok", "over budget", "not installed", "not applicable", "failed"]
Decision = Literal["reference", "same", "different", "own"]
Verdict = Literal["faster", "slower", "same", "inconclusive"]
ClockName = Literal["cpu", "wall"]
Way = Literal["", "turns", "turns in one process", "side by side", "one core each"]

SHARED: Mapping[str, Sequence[str]] = {
    "environment": ["environment"],
    "settings": ["settings"],
    "family": ["reference", "clock", "qualities", "counter_meanings", "counter_enough"],
    "variant": ["summary", "source", "same_as", "claim", "purpose"],
}
"""The fields that many stored cells share, by the kind of line that holds them."""


class Summary(Struct, frozen=True):
    """The samples of a call's time and their median, in seconds."""

    median: Amount
    samples: tuple[Amount, ...] = ()

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Summary | None":
        """Summarise samples in seconds; return None if there are none."""
        return cls(statistics.median(samples), tuple(samples)) if samples else None


class Ratio(Struct, frozen=True):
    """A variant's time / the reference's time, with a 99 % interval; lower is better.

    The estimate uses `pairs` pairs of calls in `processes` processes (or groups of processes that
    run side by side). `way` is the timing method, empty in files of versions with only one method.
    `pair_spread` and `process_spread` are standard deviations of the ratio's logarithm: among the
    pairs of a process, and the additional one among processes. The interval of a single pair is
    infinitely wide.
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
        """The lower and upper end of the 99 % interval."""
        return self.low, self.high


class CountedWork(Struct, frozen=True, omit_defaults=True):
    """The counted work of one planner call, equal on all machines with the same versions.

    `python_calls` is the number of calls of Python and built-in functions in the calling thread.
    `spread` is the difference of two such counts, None if there was only one. `built_in_share` is
    the share of the time in built-in functions (0 to 1); the work inside them is not counted.
    """

    python_calls: Count
    spread: Count | None = 0
    built_in_share: Annotated[float, Meta(ge=0, le=1)] = 0.0


class RankTable(Struct, frozen=True):
    """The figures of a decision for each rank: one row per rank, one value per column.

    `capacities` has the limit of a rank in each column, None if unlimited. `bar` names the column
    that charts draw and that ranks are ordered by, heaviest first.
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
    """A plan that moves `moved_gib` GiB relative to another plan.

    `value` is the first quality of the plan, and `bound` the proven bound on this quality.
    """

    moved_gib: Amount
    value: Number
    bound: Number | None = None


class Progress(Struct, frozen=True):
    """The progress of a call: `done` of `total` units of work; `total` is None while unknown.

    `elapsed_s` is the time that the done units took, None if unknown. `more_follows` is True if the
    units belong to one step of the call and more steps follow.
    """

    done: Size
    total: Size | None = None
    unit: str = ""
    elapsed_s: Amount | None = None
    more_follows: bool = False


class Environment(Struct, frozen=True, omit_defaults=True):
    """The code, versions and machine of a measurement; unknown fields are None.

    `code` is a hash of the harness and of all families, `family_code` of the cell's family alone.
    `commit` is of the family's sources if they are in a git checkout, with a + if they differ.
    `machine` is a hash that identifies the machine; only times of the same machine are compared.
    `load` is the one-minute load average per core.
    """

    shardbench: str | None = None
    code: str | None = None
    family_code: str | None = None
    commit: str | None = None
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
    """The result of one variant on one problem.

    `key` is the text of the `Key` of all that it depends on. Times are in seconds; `cpu_s` includes
    all threads and child processes. `against` is the variant that this one is compared with,
    `reference` the family's reference, and `ratio` the time / the time of `against` (lower is
    better): CPU time or wall time, as `clock` says. `remark` is what a reader should know of the
    timing.
    `projection_s` is the full time of an over-budget call, projected from its progress.
    `peak_memory_bytes` is the peak resident memory during the checked call (a lower bound if over
    budget), `memory_before_bytes` the resident memory just before it. `output` is the last output
    of a failed cell's child process, with control characters escaped. `front` has alternative
    plans in increasing order of the GiB that they move relative to this plan.
    """

    id: CellId
    key: str = ""
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
    clock: ClockName = "cpu"
    ratio: Ratio | None = None
    remark: str = ""
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
    def compared_s(self) -> Summary | None:
        """The time that `ratio` compares."""
        return self.wall_s if self.clock == "wall" else self.cpu_s

    @property
    def outcome(self) -> str:
        """The verdict, `reference` or `different decision` if the call ended, else the status."""
        if self.status != "ok":
            return self.status
        if self.decision in ("reference", "different"):
            return "reference" if self.decision == "reference" else "different decision"
        return self.verdict or "not compared"

    @property
    def bound(self) -> Bound | None:
        """The quality that is a proven bound on the first quality, or None."""
        return find_bound(self.qualities)

    def enough(self, counter: str) -> float | None:
        """Return the count of a counter that is enough; None if that is unknown."""
        declared = self.counter_enough.get(counter)
        return self.counters.get(declared) if isinstance(declared, str) else declared

    def record(self) -> dict[str, Any]:
        """Return the cell as a flat record in JSON types, as lines of schema 1 have it."""
        fields = to_builtins(self, enc_hook=plain_number)
        del fields["id"], fields["key"]
        problem = self.problem
        names = {"cell": str(self.id), "family": self.family, "variant": self.variant}
        place = {"workload": str(problem.workload), "topology": problem.topology}
        return {**names, **place, "gpus": problem.gpus, **fields, "schema": SCHEMA}

    @classmethod
    def stored(cls, cell: str, key: str, payload: Mapping[str, Any]) -> "Cell":
        """Return the stored cell with the id `cell`; raises ValueError if a field is wrong."""
        try:
            cell_id = CellId.parse(cell)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return convert({**payload, "id": asdict(cell_id), "key": key}, cls)


def by_problem(cells: Iterable[Cell]) -> dict[ProblemId, dict[str, Cell]]:
    """Return the last cell of each problem and variant, by problem and then by variant name."""
    found: dict[ProblemId, dict[str, Cell]] = {}
    for cell in cells:
        found.setdefault(cell.problem, {})[cell.variant] = cell
    return found


def projected_speedup(cell: Cell, against: Cell) -> float | None:
    """Return a projected speed-up: projected time of `against` / median wall time of `cell`.

    `against` must be over budget; return None if not, or if it has no projection. The factor is not
    a measurement: report it as a projection, never as a verdict.
    """
    if against.status != "over budget" or cell.status != "ok":
        return None
    if not against.projection_s or not cell.wall_s or not cell.wall_s.median:
        return None
    return against.projection_s / cell.wall_s.median

"""Cells as they are stored: one JSON line each, appended and never rewritten."""

import fcntl
import json
import math
import numbers
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.errors import ShardbenchError, UsageError
from harness.naming import CellId, ProblemId

SCHEMA = 1
_NEEDED = {"cell", "settings", "environment"}

Status = Literal["ok", "over budget", "not installed", "not applicable", "failed"]
Decision = Literal["reference", "same", "different", "own"]


def summary(samples: Sequence[float]) -> dict[str, Any] | None:
    """Return median and samples in seconds, or None without samples."""
    if not samples:
        return None
    return {"median": statistics.median(samples), "samples": list(samples)}


@dataclass(slots=True)
class Cell:
    """One variant on one problem; the fields of a stored line.

    Times are seconds, `ratio` is CPU time over that of `against`, the variant that this comparison
    was with (lower is better); `reference` is the family's. `projection_s` is the time that an
    over-budget call would have taken, projected from its progress. `peak_memory_bytes` is the most
    resident memory during the checked call, `memory_before_bytes` what there was just before it;
    an over-budget call had that peak or a higher one.
    """

    cell: str
    family: str
    variant: str
    workload: str
    topology: str
    gpus: int
    reference: str
    against: str
    summary: str
    source: str
    same_as: str | None
    purpose: str
    claim: dict[str, Any] | None
    status: Status = "ok"
    reason: str | None = None
    wall_s: dict[str, Any] | None = None
    cpu_s: dict[str, Any] | None = None
    ratio: dict[str, Any] | None = None
    verdict: str | None = None
    verdict_reason: str = ""
    decision: Decision | None = None
    fingerprint: str | None = None
    quality: dict[str, float] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    memory_before_bytes: int | None = None
    progress: dict[str, Any] | None = None
    projection_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    size_name: str | None = None
    size: float | None = None
    qualities: list[dict[str, Any]] = field(default_factory=list)
    goals: list[dict[str, Any]] = field(default_factory=list)
    counter_meanings: dict[str, str] = field(default_factory=dict)
    counter_enough: dict[str, int | str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def id(self) -> CellId:
        """The cell's id."""
        return CellId(self.family, self.variant, ProblemId.parse(self.problem))

    @property
    def problem(self) -> str:
        """The problem's id."""
        return f"{self.workload}/{self.topology}:{self.gpus}"

    def record(self) -> dict[str, Any]:
        """Return the cell as it is stored."""
        return asdict(self)


def projected_speedup(cell: Mapping[str, Any], against: Mapping[str, Any]) -> float | None:
    """Return how many times as fast a stored cell is as one that was stopped over its budget.

    It is the projection of that one over the median wall time of this one: no measurement, to be
    shown as a projection and never as a verdict. None where there is no projection.
    """
    projection, wall = against.get("projection_s"), cell.get("wall_s")
    if against.get("status") != "over budget" or cell.get("status") != "ok":
        return None
    return float(projection / wall["median"]) if projection and wall else None


def _finite(value: Any) -> Any:
    """Replace infinities, which JSON has no word for, by None; numbers of numpy by Python's."""
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def to_json(record: Any, indent: int | None = None) -> str:
    """Write strict JSON: no NaN, no Infinity."""
    return json.dumps(_finite(record), indent=indent, ensure_ascii=False, allow_nan=False)


def append_cells(path: Path, cells: Sequence[Cell]) -> None:
    """Append cells to a results file, all or none of them, and wait until they are on the disk.

    A last line that an earlier kill left torn is dropped first.

    Raises:
        ShardbenchError: the file cannot be written; it then holds what it held before.
    """
    lines = "".join(to_json(cell.record()) + "\n" for cell in cells)
    # Of a path that is not UTF-8, the parts that are not are written as JSON's own escapes.
    rest = memoryview(lines.encode(errors="backslashreplace"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise ShardbenchError(f"Results cannot be written to {path}: it is not a file.")
        # Without a buffer: one that could not be emptied would be written again on closing.
        with path.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another one may be appending; closing unlocks
            end = _end_of_last_line(path)
            file.truncate(end)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), end)
                raise
    except OSError as error:
        raise ShardbenchError(
            f"Results cannot be written to {path}: {error.strerror or error}."
        ) from None


def _end_of_last_line(path: Path) -> int:
    content = path.read_bytes()
    return content.rfind(b"\n") + 1


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the stored lines of a results file; a torn last line is left out.

    Raises:
        UsageError: the file cannot be read, or a line is not a stored cell; names file and line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    for number, line in enumerate(lines[:-1], start=1):  # behind the last newline: nothing, or torn
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            complete = record["schema"] == SCHEMA and record.keys() >= _NEEDED
        except (ValueError, KeyError, TypeError, AttributeError):
            complete = False
        if not complete:
            raise UsageError(f"{path}, line {number}: not a cell of schema {SCHEMA}.")
        yield record

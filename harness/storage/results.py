"""Cells as they are stored: one JSON line each, appended to a file that a kill leaves readable."""

import fcntl
import json
import math
import numbers
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from harness.errors import ShardbenchError, UsageError
from harness.naming import CellId, ProblemId
from harness.reading import read_file
from harness.storage.records import SCHEMA, OtherSchema, parse_record

_BLOCK_BYTES = 1 << 16

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
    an over-budget call had that peak or a higher one. `ranks` is the `RankTable` of its decision,
    where the family can plan. `output` is the last that the child process
    of a failed cell printed, with escapes for control characters.
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
    output: str | None = None
    wall_s: dict[str, Any] | None = None
    cpu_s: dict[str, Any] | None = None
    thread_cpu_s: dict[str, Any] | None = None
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
    ranks: dict[str, Any] | None = None
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


@dataclass(frozen=True, slots=True)
class Stored:
    """What a comparison that goes on must know of a cell that is stored already.

    `machine` tells the machine that measured it from others.
    """

    variant: str
    status: str
    against: str
    fingerprint: str | None
    machine: str | None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Stored":
        """Take it from a stored line."""
        return cls(
            record["variant"],
            record["status"],
            record.get("against") or record["reference"],
            record.get("fingerprint"),
            (record.get("environment") or {}).get("machine"),
        )


def projected_speedup(cell: Mapping[str, Any], against: Mapping[str, Any]) -> float | None:
    """Return how many times as fast a stored cell is as one that was stopped over its budget.

    It is the projection of that one over the median wall time of this one: no measurement, to be
    shown as a projection and never as a verdict. None where there is no projection.
    """
    projection, wall = against.get("projection_s"), cell.get("wall_s")
    if against.get("status") != "over budget" or cell.get("status") != "ok":
        return None
    if not projection or not wall or not wall["median"]:
        return None
    return float(projection / wall["median"])


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
    content = lines.encode(errors="backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_is_file(path)
        # Without a buffer: one that could not be emptied would be written again on closing.
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another one may be appending; closing unlocks
            _write_behind(file, content)
    except OSError as error:
        raise _cannot_be_written(path, error) from None


def check_is_file(path: Path) -> None:
    """Raise ShardbenchError where a path is there and is no file, e.g. a folder or a device."""
    if path.exists() and not path.is_file():
        raise ShardbenchError(f"Results cannot be written to {path}: it is not a file.")


def _cannot_be_written(path: Path, error: OSError) -> ShardbenchError:
    return ShardbenchError(f"Results cannot be written to {path}: {error.strerror or error}.")


def _write_behind(file: FileIO, content: bytes) -> None:
    """Write whole lines behind the last whole one; raises OSError and leaves the file as it was."""
    length = file.seek(0, os.SEEK_END)
    end = _end_of_last_line(file, length)
    if end < length:
        file.seek(end)
        tail = file.readall()
        if tail is not None and _is_whole(tail):  # only its line end is missing
            end, content = length, b"\n" + content
        file.truncate(end)
    _append(file, content, end)


def _append(file: FileIO, content: bytes, end: int) -> None:
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), end)
        raise


def _end_of_last_line(file: FileIO, length: int) -> int:
    end = length
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        found = (file.read(end - start) or b"").rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _is_whole(line: bytes) -> bool:
    try:
        parse_record(line)
    except ValueError as error:
        return isinstance(error, OtherSchema)
    return True


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that is no cell, and why; `torn` where it is the last one and was cut short."""

    path: Path
    line: int
    why: str
    torn: bool

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: it {self.why}."


def read_records(
    path: Path, on_damage: Callable[[Damage], None] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the stored lines of a results file as they are, each with the types of a cell.

    What is damaged is given to `on_damage` and left out. Without it a damaged line is an error,
    unless it is the last one and torn, which is all that a kill leaves.

    Raises:
        UsageError: the file cannot be read, a line is of another schema, or one is damaged.
    """
    lines = read_file(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = parse_record(line)
        except OtherSchema as error:
            raise UsageError(f"{path}, line {number}: it {error}.") from None
        except ValueError as error:
            damage = Damage(path, number, str(error), torn=number == len(lines))
            if on_damage is not None:
                on_damage(damage)
            elif not damage.torn:
                raise UsageError(str(damage)) from None
            continue
        yield record


def set_damaged_aside(path: Path) -> list[Damage]:
    """Move the damaged lines of a results file to the end of `FILE.damaged`, byte for byte.

    A torn last line stays: the next one that is appended replaces it. A kill leaves the file as it
    was or as it is to be; the caller must hold it (`harness.storage.locking`).

    Raises:
        UsageError: the file cannot be read, or holds lines of another schema.
        ShardbenchError: it cannot be written; nothing is lost.
    """
    found: list[Damage] = []
    if path.exists():
        for _ in read_records(path, found.append):
            pass
    damaged = [damage for damage in found if not damage.torn]
    if damaged:
        path = path.resolve()
        lines = path.read_bytes().split(b"\n")
        moved = {damage.line - 1 for damage in damaged}
        block = b"".join(lines[place] + b"\n" for place in sorted(moved))
        kept = b"\n".join(line for place, line in enumerate(lines) if place not in moved)
        try:
            _append_once(path.with_name(f"{path.name}.damaged"), block)
            _replace(path, kept)
        except OSError as error:
            raise _cannot_be_written(path, error) from None
    return damaged


def _append_once(path: Path, block: bytes) -> None:
    """Append a block, unless an earlier attempt that was killed has done so."""
    with path.open("a+b", buffering=0) as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - len(block)))
        if file.readall() != block:
            _append(file, block, length)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, partial)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise

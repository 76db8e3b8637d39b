"""What was measured of a library's releases: one JSON line for each count and for each round."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.model.errors import ShardbenchError
from harness.model.files import read_file

SCHEMA = 1
_SAME = ("python", "packages", "machine", "driver")

V = TypeVar("V", int, float)


@dataclass(frozen=True, slots=True)
class Counts:
    """What one release does on one problem, the same on every machine.

    `calls` has the calls made while the profiled phase runs, by the function that makes them.
    """

    problem: str
    release: str
    counters: Mapping[str, int]
    fingerprint: str
    quality: Mapping[str, float]
    calls: Mapping[str, int]

    @property
    def all_calls(self) -> int:
        """Calls of the profiled phase, by whomever."""
        return sum(self.calls.values())


@dataclass(frozen=True, slots=True)
class Times:
    """CPU seconds of one call, and of its phases."""

    cpu_s: float
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Round:
    """One call of each release on a problem, one after the other, at a machine load per core."""

    problem: str
    times: Mapping[str, Times]
    load: float


@dataclass(frozen=True, slots=True)
class NotRun:
    """A release that could not be measured, and why; `problem` is empty where that is on any."""

    problem: str
    release: str
    reason: str


@dataclass(slots=True)
class History:
    """Everything that is known of a library's releases, as measured in one environment."""

    library: str
    environment: Mapping[str, Any]
    path: Path | None = None
    counts: dict[tuple[str, str], Counts] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    not_run: dict[tuple[str, str], NotRun] = field(default_factory=dict)

    def rounds_of(self, problem: str, releases: set[str]) -> list[Round]:
        """Return the rounds on a problem in which all of these releases took turns."""
        return [
            each for each in self.rounds if each.problem == problem and releases <= {*each.times}
        ]

    def add(self, found: Counts | Round | NotRun) -> None:
        """Keep what was found, in the file too; raises ShardbenchError if that is impossible."""
        self._take(found)
        if self.path is None:
            return
        kind = {Counts: "counts", Round: "round", NotRun: "not run"}[type(found)]
        told = {"schema": SCHEMA, "kind": kind, "library": self.library, **asdict(found)}
        line = json.dumps({**told, "environment": dict(self.environment)}, allow_nan=False)
        try:
            _append(self.path, line)
        except OSError as error:
            raise ShardbenchError(
                f"{self.path} cannot be written: {error.strerror or error}."
            ) from None

    def _take(self, found: Counts | Round | NotRun) -> None:
        if isinstance(found, Counts):
            self.counts[found.problem, found.release] = found
            self.not_run.pop((found.problem, found.release), None)
        elif isinstance(found, Round):
            self.rounds.append(found)
        else:
            self.not_run[found.problem, found.release] = found


def read_history(
    path: Path,
    library: str,
    environment: Mapping[str, Any],
    on_damage: Callable[[str], None] = lambda sentence: None,
) -> History:
    """Read what a file holds of a library as measured here, on this driver and these packages.

    Lines of other libraries and environments stay in the file. A line that is damaged is told and
    left out; so is one that was cut short by a kill. What could not run is tried again.

    Raises:
        UsageError: the file cannot be read.
    """
    history = History(library, environment, path)
    if not path.exists():
        return history
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = _record(line)
            is_ours = record["library"] == library and _is_same(record["environment"], environment)
            if is_ours and (found := _found(record)) is not None:
                history._take(found)
        except ValueError as error:
            on_damage(f"{path}, line {number}: it {error}.")
    return history


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in _SAME)


def _append(path: Path, line: str) -> None:
    content = line.encode() + b"\n"
    with path.open("a+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":  # a kill cut the last line short
                content = b"\n" + content
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise ValueError(f"must be a JSON object of schema {SCHEMA}")
    _text(record, "library")
    _object(record, "environment")
    return record


def _found(record: dict[str, Any]) -> Counts | Round | None:
    kind, problem = record.get("kind"), _text(record, "problem")
    if kind == "counts":
        return counts_of(problem, _text(record, "release"), record)
    if kind == "round":
        times = {}
        for release, told in _object(record, "times").items():
            if not isinstance(told, dict):
                raise ValueError("must have an object for each release in 'times'")
            times[release] = Times(_amount(told.get("cpu_s"), "cpu_s"), _numbers(told, "phases"))
        return Round(problem, times, _amount(record.get("load"), "load"))
    if kind == "not run":
        return None
    raise ValueError("must have 'kind' as counts, round or not run")


def counts_of(problem: str, release: str, answer: Mapping[str, Any]) -> Counts:
    """Return what a driver answered to `counts`; raises ValueError for anything else."""
    return Counts(
        problem,
        release,
        _whole(answer, "counters"),
        _text(answer, "fingerprint"),
        _numbers(answer, "quality"),
        _whole(answer, "calls"),
    )


def times_of(answer: Mapping[str, Any]) -> Times:
    """Return what a driver answered to `times`; raises ValueError for anything else."""
    return Times(_amount(answer.get("cpu_s"), "cpu_s"), _numbers(answer, "phases"))


def _object(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"must have '{name}' as an object")
    return value


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise ValueError(f"must have '{name}' as a text")
    return value


def _amount(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"must have '{name}' as a number of at least 0")
    return float(value)


def _numbers(record: Mapping[str, Any], name: str) -> dict[str, float]:
    return {key: _amount(value, name) for key, value in _object(record, name).items()}


def _whole(record: Mapping[str, Any], name: str) -> dict[str, int]:
    found = _object(record, name)
    for value in found.values():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"must have '{name}' as whole numbers of at least 0")
    return found

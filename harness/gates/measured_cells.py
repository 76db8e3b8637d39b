"""The cells of a results file as a gate judges them: whole, each there once, or not at all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ShardbenchError
from harness.storage.results import Damage, read_records


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One stored cell, without its times.

    `ratio` is the interval of the share of the time of `against`, None where there is none;
    `better` says of each quality whether `lower` or `higher` is better.
    """

    cell: str
    family: str
    variant: str
    problem: str
    against: str
    same_as: str
    status: str
    reason: str
    decision: str | None
    fingerprint: str | None
    quality: Mapping[str, float]
    counters: Mapping[str, int]
    ratio: tuple[float, float] | None
    verdict_reason: str
    better: Mapping[str, str]
    python: str
    packages: Mapping[str, str]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "MeasuredCell":
        """Take it from a stored line whose types are checked."""
        environment = record.get("environment") or {}
        qualities = record.get("qualities") or ()
        return cls(
            cell=_text(record["cell"]),
            family=_text(record["family"]),
            variant=_text(record["variant"]),
            problem=_text(record["cell"]).partition("@")[2],
            against=_text(record.get("against") or record["reference"]),
            same_as=_text(record.get("same_as")),
            status=record["status"],
            reason=_text(record.get("reason")),
            decision=_text(record.get("decision")) or None,
            fingerprint=_text(record.get("fingerprint")) or None,
            quality=_figures(record.get("quality")),
            counters=_counts(record),
            ratio=_interval(record.get("ratio")),
            verdict_reason=_text(record.get("verdict_reason")),
            better={_text(each["name"]): each.get("better") or "" for each in qualities},
            python=_text(environment.get("python")),
            packages={
                _text(name): _text(version)
                for name, version in (environment.get("packages") or {}).items()
            },
        )

    @property
    def is_as_it_must_be(self) -> bool:
        """Whether it neither failed nor decides otherwise than the variant that it reproduces."""
        return self.status != "failed" and self.decision != "different"


def read_cells(path: Path) -> dict[str, MeasuredCell]:
    """Read a results file; returns its cells by id.

    Raises:
        ShardbenchError: it cannot be read, holds no cell, a line is damaged or torn, or a cell is
            there twice with different contents.
    """
    damaged: list[Damage] = []
    records: dict[str, Mapping[str, Any]] = {}
    for record in read_records(path, damaged.append):
        _check_id(path, record)
        if records.setdefault(record["cell"], record) != record:
            raise ShardbenchError(
                f"{path} holds the cell '{record['cell']}' twice, with different contents; "
                "the results of one run can be judged."
            )
    if damaged:
        raise ShardbenchError(f"{str(damaged[0]).rstrip('.')}; only whole results can be judged.")
    if not records:
        raise ShardbenchError(f"{path} holds no cell, so there is nothing to judge.")
    return {found.cell: found for found in map(MeasuredCell.of, records.values())}


def _check_id(path: Path, record: Mapping[str, Any]) -> None:
    """A cell under the id of another one would be judged by what is expected of that."""
    problem = f"{record['workload']}/{record['topology']}:{record['gpus']}"
    if record["cell"] != f"{record['family']}/{record['variant']}@{problem}":
        raise ShardbenchError(
            f"{path}: the id of cell '{record['cell']}' does not say what its line says, "
            f"'{record['family']}/{record['variant']}' on '{problem}'."
        )


def _text(value: Any) -> str:
    """Return a text that a TOML file can hold, whatever bytes it once came from."""
    return str(value or "").encode(errors="backslashreplace").decode()


def _figures(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {_text(name): value for name, value in (values or {}).items() if value is not None}


def _counts(record: Mapping[str, Any]) -> dict[str, int]:
    counters = _figures(record.get("counters"))
    for name, value in counters.items():
        if value < 0 or value != int(value):
            raise ShardbenchError(
                f"Counter '{name}' of cell '{record['cell']}' is {value}; a count must be a whole "
                "number from 0 on."
            )
    return {name: int(value) for name, value in counters.items()}


def _interval(ratio: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """Return the interval; a side that is not stored is infinitely far, as after a single pair."""
    if ratio is None:
        return None
    low, high = ratio.get("low"), ratio.get("high")
    return 0.0 if low is None else float(low), math.inf if high is None else float(high)

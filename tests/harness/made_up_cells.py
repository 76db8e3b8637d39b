"""Stored cells of a planner that does not exist: every number here is invented."""

import json
from pathlib import Path
from typing import Any

from harness.model.cell import Cell
from harness.model.files import legible

PROBLEM = "crates[boxes=10]/toy_rack:4"
QUALITIES = [
    {"name": "cost", "unit": "ms", "better": "lower", "meaning": "made up"},
    {"name": "bound", "unit": "ms", "better": "higher", "meaning": "made up", "bounds": "cost"},
]
ENVIRONMENT = {"python": "3.11.7", "packages": {"widgets": "1.2"}}


def line(
    variant: str = "quick", /, problem: str = PROBLEM, family: str = "boxing", **changes: Any
) -> dict[str, Any]:
    """Return a line of a results file: `slow` is the reference, others take half of its time."""
    workload, _, where = problem.rpartition("/")
    topology, _, gpus = where.rpartition(":")
    is_reference = variant == "slow"
    return {
        "schema": 1,
        "cell": f"{family}/{variant}@{problem}",
        "family": family,
        "variant": variant,
        "workload": workload,
        "topology": topology,
        "gpus": int(gpus),
        "reference": "slow",
        "against": "slow",
        "same_as": None if is_reference else "slow",
        "status": "ok",
        "reason": None,
        "ratio": None if is_reference else {"value": 0.5, "low": 0.48, "high": 0.52, "pairs": 8},
        "verdict_reason": "",
        "decision": "reference" if is_reference else "same",
        "fingerprint": "c0ffee",
        "quality": {"cost": 20.0, "bound": 16.0},
        "counters": {"copies": 1000, "lookups": 20},
        "qualities": QUALITIES,
        "settings": {},
        "environment": ENVIRONMENT,
    } | changes


def ended(variant: str, status: str, **changes: Any) -> dict[str, Any]:
    """Return a line of a results file for a cell without figures."""
    nothing = dict.fromkeys(("ratio", "decision", "fingerprint"))
    return line(variant, status=status, quality={}, counters={}, **nothing | changes)


def cell_of(record: dict[str, Any]) -> Cell:
    """Return the cell of a line."""
    return Cell.stored(record["cell"], "", legible(record))


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    """Write a results file and return its path."""
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


WIDE = {"value": 0.5, "low": 0.1, "high": 5.0, "pairs": 2}


def results(folder: Path, **changes: Any) -> str:
    """Write results of `slow` and of a changed `quick`, and return the file's name."""
    write(folder / "results.jsonl", [line("slow"), line(**changes)])
    return "results.jsonl"

"""Results for the gate to judge by the fixture `expected`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from made_up_cells import line, write

Run = Callable[..., tuple[int, str, str]]

WIDE = {"value": 0.5, "low": 0.1, "high": 5.0, "pairs": 2}


def results(folder: Path, **changes: Any) -> str:
    write(folder / "results.jsonl", line("slow"), line(**changes))
    return "results.jsonl"

"""Writes down what becomes of each test, line by line, so that a killed process loses one test."""

import json
import os
import re
from pathlib import Path
from typing import Any

RECORD = Path(os.environ["PEERS_RECORD"])


def write(**entry: Any) -> None:
    """Append an entry; processes may do so at the same time."""
    with RECORD.open("ab") as file:
        file.write(json.dumps(entry).encode() + b"\n")


def entries() -> list[dict[str, Any]]:
    """Return all entries so far."""
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


def current_test() -> str:
    """Return the id of the test that this process, or the one that started it, is running."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]


def first_line(text: str) -> str:
    """Return the line of an error that says most: what was raised last, or else line 1."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [
        line for line in lines if re.match(r"(E +)?[\w.]+(Error|Exception|Exit|Failure)\b", line)
    ]
    return (raised[-1].removeprefix("E ").strip() if raised else (lines or [""])[0])[:300]

"""A file with each test's outcome as a line, so that a killed process loses one test at most."""

import json
import os
import re
from pathlib import Path
from typing import Any

RECORD = Path(os.environ["PEERS_RECORD"])


def write(**entry: Any) -> None:
    """Append an entry; several processes may append at the same time."""
    with RECORD.open("ab") as file:
        file.write(json.dumps(entry).encode() + b"\n")


def entries() -> list[dict[str, Any]]:
    """Return all entries so far."""
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


def current_test() -> str:
    """Return the id of the test that this process or its parent is running."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]


def first_line(text: str) -> str:
    """Return the most informative line of an error: the last exception, or else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [
        line for line in lines if re.match(r"(E +)?[\w.]+(Error|Exception|Exit|Failure)\b", line)
    ]
    return (raised[-1].removeprefix("E ").strip() if raised else (lines or [""])[0])[:300]

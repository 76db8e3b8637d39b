"""A small file of recorded conversions, and altered copies of it."""

from copy import deepcopy
from pathlib import Path
from typing import Any

from small_streams import refusal, write_stream

from harness.contract import UsageError
from planners.dimspec.conversion.costs import Cost
from planners.dimspec.stream_file import read_stream

ANSWERED = {
    "path": ["[R, R]", "[S0, R]"],
    "comms": ["SPLIT_FWD_GATHER_BWD"],
    "cost": {"fwd": 100, "bwd": 17.1, "total": 117.1},
}
COST = Cost(100.0, 17.1, 117.1)
DOCUMENT: dict[str, Any] = {
    "source": "made up",
    "mesh_shape": [2, 4],
    "mesh_alpha": [1, 2.5],
    "mesh_beta": [0, 1e-9],
    "queries": [
        {"shape": [8, 4], "src": [], "dst": [[0, [0]]], **ANSWERED},
        {"shape": [8, 4], "src": [[-1, [1]], [0, [0]]], "dst": [[0, [0, 1]]], **ANSWERED},
        {"shape": [6, 4], "src": [[0, [0]]], "dst": [], **ANSWERED},
    ],
    "sequence": [0, 1, 0, 2, 1, 0],
}


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def with_query(number: int, **changes: Any) -> dict[str, Any]:
    document = deepcopy(DOCUMENT)
    document["queries"][number].update(changes)
    return document


def file_refusal(path: Path, document: Any, *choose: Any) -> str:
    """Return the sentence that refuses a file, without the file's name at the beginning."""
    said = refusal(UsageError, read_stream, write_stream(path, document), *choose)
    assert said.startswith(f"{path}: ")
    return said.removeprefix(f"{path}: ")

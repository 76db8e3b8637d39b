"""Topologies as they are written, right or wrong: rows of a CSV file, torchrec's own arguments."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from harness.errors import UsageError, printable

# What torchrec's `Topology` calls the columns of a topology file.
TORCHREC_ARGUMENTS = {
    "local_world_size": "gpus_per_host",
    "pod_size": "hosts_per_nvlink_domain",
    "hbm_cap": "hbm_bytes",
    "ddr_cap": "ddr_bytes",
    "intra_host_bw": "intra_host_bw",
    "inter_host_bw": "inter_host_bw",
    "hbm_mem_bw": "hbm_bw",
    "hbm_to_ddr_mem_bw": "hbm_to_ddr_bw",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A topology as written: the text of each cell by its column, and how a message names it.

    `is_torchrec` says that it was written as arguments of torchrec's `Topology`; `world_size` is
    theirs.
    """

    where: str
    cells: Mapping[str, str]
    is_torchrec: bool = False
    world_size: int | None = None

    def called(self, column: str) -> str:
        """Return what the writer calls a column."""
        if not self.is_torchrec:
            return column
        names = {ours: theirs for theirs, ours in TORCHREC_ARGUMENTS.items()}
        return names.get(column, column)


def read_rows(text: str, file: str) -> list[Written]:
    """Read every row of a topology file, whatever is in its cells.

    Raises:
        UsageError: it is no table with a column `name`, or has no row.
    """
    lines = (line for line in io.StringIO(text, newline="") if not line.startswith("#"))
    rows = csv.reader(lines)
    columns: Sequence[str] = ()
    found: list[Written] = []
    try:
        for cells in rows:
            if not columns:
                columns = cells
            elif any(cells):
                row = dict(zip_longest(columns, cells[: len(columns)], fillvalue=""))
                name = printable(row.get("name", "").strip()[:60]) or "no name"
                found.append(Written(f"{file}, row {len(found) + 1} ({name})", row))
    except csv.Error as error:
        raise UsageError(f"{file}, line {rows.line_num}: {error}.") from None
    if "name" not in columns:
        raise UsageError(f"{file}: column 'name' is missing, so it is no file of topologies.")
    if not found:
        raise UsageError(f"{file}: no topology is listed.")
    return found


def read_torchrec_arguments(text: str, file: str) -> Written:
    """Read arguments of torchrec's `Topology` from a JSON object such as `{"world_size": 16}`.

    Raises:
        UsageError: it is no JSON object, or a value of it is no number.
    """
    try:
        # Whatever JSON takes for a number stays the text that was written.
        read = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: it is no JSON ({error}).") from None
    if not isinstance(read, dict):
        raise UsageError(f"{file} must hold a JSON object of torchrec's arguments.")
    cells = {
        column: _number(read[argument], argument, file)
        for argument, column in TORCHREC_ARGUMENTS.items()
        if read.get(argument) is not None
    }
    cells["name"] = str(read.get("name", "torchrec"))
    cells["gpu"] = str(read.get("gpu", ""))
    world = read.get("world_size")
    if world is not None and not str(world).isdecimal():
        raise UsageError(f"{file}: world_size must be a whole number, not '{world}'.")
    size = int(world) if world is not None and len(str(world)) < 12 else None
    return Written(file, cells, is_torchrec=True, world_size=size)


def _number(value: Any, argument: str, file: str) -> str:
    if isinstance(value, str):
        return value
    raise UsageError(f"{file}: {argument} must be a number, not {json.dumps(value)[:60]}.")

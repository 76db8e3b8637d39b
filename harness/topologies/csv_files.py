"""Topologies as they are written, right or wrong: rows of a CSV file, torchrec's own arguments."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from harness.model.errors import UsageError, printable
from harness.model.topology import CAPTURED, Topology

# Plausible range of each bandwidth in bytes per millisecond. Narrow enough that the same figure in
# bytes per second or in GB/s falls outside: that confusion is the commonest mistake with torchrec.
_BANDWIDTH_RANGES = {
    "intra_host_bw": (1e6, 4e9),
    "intra_host_bw_nccl": (1e6, 4e9),
    "inter_host_bw": (1e5, 4e8),
    "hbm_bw": (1e7, 4e10),
    "hbm_to_ddr_bw": (1e6, 1e9),
}
_BYTES_RANGE = (2**30, 2**42)
_MOST_IN_DOMAIN = 2**12
_REQUIRED = ("name", "gpus_per_host", "hbm_bytes", "intra_host_bw", "hbm_bw", "hbm_to_ddr_bw")


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
        column: _argument(read[argument], argument, file)
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


def _argument(value: Any, argument: str, file: str) -> str:
    if isinstance(value, str):
        return value
    raise UsageError(f"{file}: {argument} must be a number, not {json.dumps(value)[:60]}.")


def _number(row: Mapping[str, str], field: str, where: str) -> float | None:
    text = (row.get(field) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{where}: {field} must be a number, not '{text}'.") from None
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"{where}: {field} must be a positive number, not '{text}'.")
    return value


def _bandwidth(row: Mapping[str, str], field: str, where: str) -> float | None:
    value = _number(row, field, where)
    if value is None:
        return None
    low, high = _BANDWIDTH_RANGES[field]
    if low <= value <= high:
        return value
    hint = ""
    if low <= value / 1e3 <= high:
        hint = "; it looks like bytes per second, so divide it by 1000"
    elif low <= value * 1e6 <= high:
        hint = "; it looks like GB/s, so multiply it by 1,000,000"
    raise UsageError(
        f"{where}: {field} must be bytes per millisecond, from {low:.0e} to {high:.0e}, "
        f"not {value:g}{hint}."
    )


def _bytes(row: Mapping[str, str], field: str, where: str) -> int | None:
    value = _number(row, field, where)
    if value is None:
        return None
    low, high = _BYTES_RANGE
    if not low <= value <= high:
        raise UsageError(
            f"{where}: {field} must be bytes per GPU, from {low} to {high}, not {value:g}."
        )
    return int(value)


def _count(row: Mapping[str, str], field: str, where: str, default: int) -> int:
    value = _number(row, field, where)
    if value is not None and value != int(value):
        raise UsageError(f"{where}: {field} must be a whole number, not {value:g}.")
    return default if value is None else int(value)


def _topology(row: Mapping[str, str], where: str) -> Topology:
    for field in _REQUIRED:
        if not (row.get(field) or "").strip():
            raise UsageError(f"{where}: {field} is missing.")
    if any(letter in row["name"] for letter in "/:@"):
        raise UsageError(f"{where}: name must not hold '/', ':' or '@', which ids are made with.")
    if row["name"].strip() == CAPTURED:
        raise UsageError(
            f"{where}: name must not be '{CAPTURED}', as what a captured workload brings is called."
        )
    hbm_bytes = _bytes(row, "hbm_bytes", where)
    intra_host_bw, hbm_bw, hbm_to_ddr_bw = (
        _bandwidth(row, field, where) for field in ("intra_host_bw", "hbm_bw", "hbm_to_ddr_bw")
    )
    # All required, so checked above; said again for the type checker.
    assert hbm_bytes is not None
    assert intra_host_bw is not None
    assert hbm_bw is not None
    assert hbm_to_ddr_bw is not None
    gpus_per_host = _count(row, "gpus_per_host", where, 1)
    hosts_per_domain = _count(row, "hosts_per_nvlink_domain", where, 1)
    if gpus_per_host * hosts_per_domain > _MOST_IN_DOMAIN:
        raise UsageError(
            f"{where}: gpus_per_host times hosts_per_nvlink_domain must be at most "
            f"{_MOST_IN_DOMAIN:,}."
        )
    return Topology(
        name=row["name"].strip(),
        gpus_per_host=gpus_per_host,
        hosts_per_nvlink_domain=hosts_per_domain,
        hbm_bytes=hbm_bytes,
        ddr_bytes=_bytes(row, "ddr_bytes", where),
        intra_host_bw=intra_host_bw,
        intra_host_bw_nccl=_bandwidth(row, "intra_host_bw_nccl", where),
        inter_host_bw=_bandwidth(row, "inter_host_bw", where),
        hbm_bw=hbm_bw,
        hbm_to_ddr_bw=hbm_to_ddr_bw,
        gpu=(row.get("gpu") or "").strip(),
        hbm_basis=(row.get("hbm_basis") or "").strip(),
        confidence=(row.get("confidence") or "not stated").strip(),
        source=(row.get("source") or "not stated").strip(),
    )


def _rows(text: str, file: str) -> Iterator[dict[str, str]]:
    """Yield each row by column, once the columns are checked."""
    lines = (line for line in io.StringIO(text, newline="") if not line.startswith("#"))
    rows = csv.reader(lines)
    columns: list[str] = []
    try:
        for cells in rows:
            if not columns:
                columns = cells
                _check_columns(columns, file)
            elif any(cells[len(columns) :]):
                raise UsageError(
                    f"{file}, line {rows.line_num}: it must have at most {len(columns)} cells, one "
                    f"per column, not {len(cells)}."
                )
            elif cells:
                yield dict(zip_longest(columns, cells[: len(columns)], fillvalue=""))
    except csv.Error as error:
        raise UsageError(f"{file}, line {rows.line_num}: {error}.") from None
    _check_columns(columns, file)


def _check_columns(columns: Sequence[str], file: str) -> None:
    for field in _REQUIRED:
        if field not in columns:
            raise UsageError(
                f"{file}: column '{field}' is missing; needed are {', '.join(_REQUIRED)}."
            )
    for field in filter(None, columns):
        if columns.count(field) > 1:
            raise UsageError(f"{file}: column '{field}' must be there once, not several times.")


def read_topologies(text: str, file: str) -> dict[str, Topology]:
    """Read topologies from CSV text whose lines that start with `#` are comments.

    Raises:
        UsageError: a column is missing or a figure is impossible; names file, row and field.
    """
    found: dict[str, Topology] = {}
    for number, row in enumerate(_rows(text, file), start=1):
        topology = _topology(row, f"{file}, row {number} ({row['name'] or 'no name'})")
        if topology.name in found:
            raise UsageError(f"{file}: topology '{topology.name}' is listed twice.")
        found[topology.name] = topology
    if not found:
        raise UsageError(f"{file}: no topology is listed.")
    return found

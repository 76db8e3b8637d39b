"""Read topology files in CSV, with errors that name the wrong field."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from importlib import resources
from itertools import zip_longest
from typing import Any, get_args, get_type_hints

import msgspec

from harness.contract.abilities.topology import TopologyRow
from harness.model.errors import UsageError, printable
from harness.model.topology import MOST_IN_DOMAIN, Topology

_FIELDS = [field for field in fields(Topology) if field.name != "gpus"]
_TYPES = get_type_hints(Topology, include_extras=True)
REQUIRED = tuple(field.name for field in _FIELDS if field.default is MISSING)
COLUMNS: dict[str, Any] = {
    name: get_args(_TYPES[name])[0] if type(None) in get_args(_TYPES[name]) else _TYPES[name]
    for name in (field.name for field in _FIELDS)
}
"""The type of a filled field, with its limits, by column."""

# Units that users confuse with the unit of the file, and their factors to it.
_UNITS: dict[str, dict[str, float]] = {
    "bw": {"bytes per second": 1e-3, "GB/s": 1e6, "TB/s": 1e9, "MB/s": 1e3},
    "bytes": {"GiB": 2**30, "MiB": 2**20, "TiB": 2**40},
}


def data_text(file: str) -> str:
    """Return the text of a data file of this package."""
    return (resources.files("harness.topologies") / "data" / file).read_text("utf-8")


def read_table(text: str, file: str, needed: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Yield each row of a CSV file as a dict by column. Lines that start with `#` are comments.

    Raise UsageError if a `needed` column is missing, a column is repeated, or a row is too long.
    """
    lines = (line for line in io.StringIO(text, newline="") if not line.startswith("#"))
    rows = csv.reader(lines)
    try:
        columns = next(filter(None, rows), [])
        for column in (*needed, *filter(None, columns)):
            if column not in columns:
                raise UsageError(
                    f"{file}: column '{column}' is missing; needed are {', '.join(needed)}."
                )
            if columns.count(column) > 1:
                raise UsageError(f"{file}: column '{column}' must be there once.")
        for texts in rows:
            if any(texts[len(columns) :]):
                raise UsageError(
                    f"{file}, line {rows.line_num}: it must have at most {len(columns)} fields, "
                    f"one per column, not {len(texts)}."
                )
            if any(texts):
                pairs = zip_longest(columns, texts[: len(columns)], fillvalue="")
                yield {column: text.strip() for column, text in pairs}
    except csv.Error as error:
        raise UsageError(f"{file}, line {rows.line_num}: {error}.") from None


def read_rows(text: str, file: str, needed: Sequence[str] = ("name",)) -> list[TopologyRow]:
    """Read the rows of a topology file, unchecked. Raise UsageError if there are none."""
    rows = [
        TopologyRow(f"{file}, row {number} ({printable(texts['name'][:60]) or 'no name'})", texts)
        for number, texts in enumerate(read_table(text, file, needed), start=1)
    ]
    if not rows:
        raise UsageError(f"{file}: no topology is listed.")
    return rows


def read_topologies(text: str, file: str) -> dict[str, Topology]:
    """Read topologies by name. Raise UsageError that names the file, row and wrong field."""
    found: dict[str, Topology] = {}
    for row in read_rows(text, file, REQUIRED):
        values, refused = read_values(row.texts)
        for column, (wrong, in_unit) in refused.items():
            raise UsageError(f"{row.where}: {column} {wrong}{in_unit and f'; write {in_unit}'}.")
        if values["name"] in found:
            raise UsageError(f"{file}: topology '{values['name']}' is listed twice.")
        found[values["name"]] = Topology(**values)
    return found


def read_values(texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """Return the values of the valid fields, and the errors of the others, both by column.

    An error is the reason and, if only the unit is wrong, the corrected text, else an empty text.
    """
    values: dict[str, Any] = {}
    refused: dict[str, tuple[str, str]] = {}
    for column, kind in COLUMNS.items():
        if not (text := texts.get(column, "")):
            if column in REQUIRED:
                refused[column] = ("is missing", "")
            continue
        try:
            values[column] = msgspec.convert(text, kind, strict=False)
        except (msgspec.ValidationError, UnicodeEncodeError):
            refused[column] = _refusal(column, text)
    hosts = values.get("hosts_per_nvlink_domain", 1)
    if values.get("gpus_per_host", 1) * hosts > MOST_IN_DOMAIN:
        del values["hosts_per_nvlink_domain"]
        wrong = f"times gpus_per_host must be at most {MOST_IN_DOMAIN:,}"
        refused["hosts_per_nvlink_domain"] = (wrong, "")
    return values, refused


def _refusal(column: str, text: str) -> tuple[str, str]:
    limits = COLUMNS[column].__metadata__[0]
    span = f", from {limits.ge:,} to {limits.le:,}" if limits.ge else ""
    wrong = f"must be {limits.description}{span}, not '{text}'"
    for unit, size in _UNITS.get("bw" if "_bw" in column else column[-5:], {}).items():
        with suppress(ValueError, msgspec.ValidationError):
            figure = f"{float(text) * size:.0f}"
            msgspec.convert(figure, COLUMNS[column], strict=False)
            return wrong, f"{figure} if {unit} were meant"
    return wrong, ""

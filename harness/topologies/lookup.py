"""Find a topology by preset, file or captured workload, and the data sheet of a GPU by its name."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from importlib import resources
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from harness.contract import Family
from harness.contract.abilities import TopologyRow
from harness.model.errors import UsageError, printable, unknown
from harness.model.files import read_file
from harness.model.ids import WorkloadSpec
from harness.model.topology import CAPTURED, MOST_IN_DOMAIN, Topology

GB = 1e6
"""Bytes per millisecond in a GB/s, a decimal one, as bandwidths are stored."""

_FIELDS = [field for field in fields(Topology) if field.name not in ("gpus", "machine")]
_TYPES = get_type_hints(Topology, include_extras=True)
_REQUIRED = tuple(field.name for field in _FIELDS if field.default is MISSING)
COLUMNS: dict[str, Any] = {
    name: get_args(_TYPES[name])[0] if type(None) in get_args(_TYPES[name]) else _TYPES[name]
    for name in (field.name for field in _FIELDS)
}
"""The type of a filled field, with its limits, by column."""

_JUDGED = re.compile(r"(?P<topology>.+)\+(?P<machine>[\w.-]+|.+\.toml)", re.DOTALL)

# Units that users confuse with the unit of the file, and their factors to it.
_UNITS: dict[str, dict[str, float]] = {
    "bw": {"bytes per second": 1e-3, "GB/s": 1e6, "TB/s": 1e9, "MB/s": 1e3},
    "bytes": {"GiB": 2**30, "MiB": 2**20, "TiB": 2**40},
}


def find_topology(name: str, gpus: int) -> Topology:
    """Return a preset or a topology of a file (`FILE.csv` or `FILE.csv#NAME`) with `gpus` GPUs.

    Raise UsageError if there is no such topology or if it cannot have `gpus` GPUs.
    """
    if name in presets():
        return presets()[name].sized(gpus)
    first, *others = find_rows(name)
    if others:
        file = name.partition("#")[0]
        raise UsageError(
            f"{name} names {1 + len(others)} topologies; write {file}#NAME for one of them."
        )
    return _topology(first).sized(gpus)


def find_rows(name: str) -> list[TopologyRow]:
    """Return the rows of a preset, `FILE.csv` or `FILE.csv#NAME`, unchecked.

    Raise UsageError if there are none.
    """
    path, _, wanted = name.partition("#")
    if path.endswith(".csv"):
        try:
            rows = read_rows(read_file(path).decode("utf-8-sig"), path)
        except UnicodeDecodeError:
            raise UsageError(f"{path} cannot be read: it must be UTF-8 text.") from None
        chosen = [row for row in rows if wanted in ("", row.texts.get("name"))]
        kind = f"topology in {path}"
    else:
        rows, kind, wanted = read_rows(data_text("topologies.csv"), "presets"), "topology", name
        chosen = [replace(row, where=name) for row in rows if row.texts["name"] == name]
    if not chosen:
        raise unknown(kind, wanted, {row.texts.get("name", "") for row in rows})
    return chosen


def placed_on(
    family: Family[Any, Any],
    workload: WorkloadSpec,
    name: str | None = None,
    gpus: int | None = None,
) -> Topology:
    """Return the topology `name` with `gpus` GPUs, or else the captured workload's own topology.

    The file of a captured workload includes its topology, which has the name `captured`. A name
    `TOPOLOGY+MACHINE` adds a calibrated machine. Raise UsageError if no topology is named and the
    workload has none, if `gpus` differs from the captured number, or if the named topology does not
    exist.
    """
    if judged := _JUDGED.fullmatch(name or ""):
        placed = placed_on(family, workload, judged["topology"], gpus)
        return placed.judged_by(judged["machine"])
    if name not in (None, CAPTURED):
        if gpus is None:
            raise UsageError(f"Say with --gpus how many GPUs of '{name}' there are.")
        return find_topology(name, gpus)
    captured = family.brings(workload)
    if captured is None:
        family.label(workload)  # raises UsageError if the workload does not exist
        raise UsageError(
            f"Workload '{workload}' of family '{family.name}' brings no topology of its own: name "
            "one with --topology, and with --gpus how many GPUs."
        )
    if gpus not in (None, captured.gpus):
        raise UsageError(
            f"'{workload}' was captured on {captured.gpus} GPUs, not on {gpus}; name a --topology "
            "to plan it for others."
        )
    return captured


@cache
def presets() -> dict[str, Topology]:
    """Return the topologies that shardbench includes, by name."""
    return read_topologies(data_text("topologies.csv"), "topologies.csv")


def data_text(file: str) -> str:
    """Return the text of a data file of this package."""
    return (resources.files("harness.topologies") / "data" / file).read_text("utf-8")


def read_topologies(text: str, file: str) -> dict[str, Topology]:
    """Read topologies by name. Raise UsageError that names the file, row and wrong field."""
    return {row.texts.get("name", ""): _topology(row) for row in read_rows(text, file)}


def topology_file(comments: str, columns: Mapping[str, object]) -> str:
    """Return a topology file with comments and one row; raises as `read_topologies`."""
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in comments.split("\n"))
    csv.writer(text, lineterminator="\n").writerows([columns, columns.values()])
    read_topologies(text.getvalue(), "the topology")
    return text.getvalue()


def _topology(row: TopologyRow) -> Topology:
    if row.texts.get("coefficients"):  # as releases before 0.3 wrote them
        raise UsageError(
            f"{row.where}: a calibration is a file of its own now; `shardbench calibrate -o "
            "machine.toml` writes it, and --machine takes it."
        )
    values, refused = read_values(row.texts)
    for column, (wrong, write) in refused.items():
        raise UsageError(f"{row.where}: {column} {wrong}{write and f'; write {write}'}.")
    return Topology(**values)


def read_rows(text: str, file: str) -> list[TopologyRow]:
    """Read the rows of a topology file, unchecked. Raise UsageError if there are none."""
    rows = []
    for number, texts in enumerate(read_table(text, file), start=1):
        name = printable(texts.get("name", "")[:60]) or "no name"
        rows.append(TopologyRow(f"{file}, row {number} ({name})", texts))
    if not rows:
        raise UsageError(f"{file}: no topology is listed.")
    return rows


def read_table(text: str, file: str) -> Iterator[dict[str, str]]:
    """Yield each row of a CSV file as a dict by column. Lines that start with `#` are comments.

    Raise UsageError if a column is repeated or a row is too long.
    """
    lines = io.StringIO(text, newline="")
    rows = csv.DictReader((line for line in lines if not line.startswith("#")), restval="")
    try:
        columns = list(filter(None, rows.fieldnames or ()))
        if len(set(columns)) < len(columns):
            raise UsageError(f"{file}: a column is there twice.")
        for row in rows:
            if any(row.pop(None, ())):  # the fields without a column
                raise UsageError(f"{file}, line {rows.line_num}: more fields than columns.")
            if any(row.values()):
                yield {column: text.strip() for column, text in row.items()}
    except csv.Error as error:
        raise UsageError(f"{file}, line {rows.line_num}: {error}.") from None


def read_values(texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """Return the values of the valid fields, and the errors of the others, both by column.

    An error is the reason and, if only the unit is wrong, the corrected text, else an empty text.
    """
    values: dict[str, Any] = {}
    refused: dict[str, tuple[str, str]] = {}
    for column, kind in COLUMNS.items():
        if text := texts.get(column, ""):
            try:
                values[column] = msgspec.convert(text, kind, strict=False)
            except (msgspec.ValidationError, UnicodeEncodeError):
                refused[column] = _refusal(column, text)
        elif column in _REQUIRED:
            refused[column] = ("is missing", "")
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


class GpuKind(msgspec.Struct, frozen=True):
    """The data sheet of a GPU model, in bytes and bytes per millisecond one way.

    It is a row of `data/gpus.csv`. None means unknown.
    """

    name: str
    names: str
    hbm_bw: float
    nvlinks: int
    host_link_bw: float
    source: str
    memory_bytes: int | None = None
    memory_basis: str = ""
    nvlink_bw: float | None = None
    most_per_host: int | None = None
    domain: int | None = None

    @property
    def all_links_bw(self) -> float | None:
        """The sum of the bandwidths of all NVLinks or xGMI links, bytes per millisecond one way."""
        return self.nvlinks * self.nvlink_bw if self.nvlinks and self.nvlink_bw else None

    @property
    def has_own_host_link(self) -> bool:
        """Whether NVLink-C2C, not PCIe, connects the GPU with its CPU."""
        return self.host_link_bw > 128 * GB


@cache
def gpu_kinds() -> tuple[GpuKind, ...]:
    """Return all GPU models with known data sheets."""
    kinds = []
    for row in read_table(data_text("gpus.csv"), "gpus.csv"):
        filled = {
            column.replace("_gb_s", "_bw"): float(text) * GB if "_gb_s" in column else text
            for column, text in row.items()
            if text
        }
        kinds.append(msgspec.convert(filled, GpuKind, strict=False))
    return tuple(kinds)


def find_gpu_kind(name: str) -> GpuKind | None:
    """Return the GPU model of a name in the spelling of a driver, torch or a file, or None.

    `NVIDIA H100 80GB HBM3`, `H100-SXM5-80GB` and `h100 sxm` name the same model. `H100` alone
    matches several models, so the result is None.
    """
    words, longest, matches = _words(name), 0, list[GpuKind]()
    for kind in gpu_kinds():
        aliases = (set(alias.split()) for alias in kind.names.split("|"))
        length = max((len(alias) for alias in aliases if alias <= words), default=0)
        if length > longest:
            longest, matches = length, []
        if length == longest > 0:
            matches.append(kind)
    return matches[0] if len(matches) == 1 else None


def _words(name: str) -> set[str]:
    words = set(re.findall(r"[A-Z0-9]+", name.upper()))
    # `SXM5` also yields `SXM`, to match aliases without a generation.
    return words | {word[:3] for word in words if re.fullmatch(r"SXM\d", word)}


def require_gpu_kind(name: str) -> GpuKind:
    """Return the GPU model of a name. Raise UsageError that lists similar or all known models."""
    if kind := find_gpu_kind(name):
        return kind
    words = _words(name)
    near = [kind.name for kind in gpu_kinds() if words & _words(kind.name)]
    known = ", ".join(near or (kind.name for kind in gpu_kinds()))
    raise UsageError(f"No single data sheet is known for a GPU '{name}'; it may be any of {known}.")

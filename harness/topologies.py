"""The machines a workload is sharded over: presets with their sources, checked on load."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import zip_longest

from harness.errors import UsageError, unknown
from harness.reading import read_file

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
MOST_GPUS = 2**17
"""More than any cluster has; planners keep an object for each."""

CAPTURED = "captured"
"""The topology that a captured workload brings, in ids."""

_REQUIRED = ("name", "gpus_per_host", "hbm_bytes", "intra_host_bw", "hbm_bw", "hbm_to_ddr_bw")


@dataclass(frozen=True, slots=True)
class Topology:
    """A kind of machine, and how many of its GPUs a problem uses.

    Capacities are bytes per GPU, bandwidths bytes per millisecond and one way; None means that no
    sourced figure exists and the library's own default applies. `gpus` is 0 in a bare preset.
    """

    name: str
    gpus_per_host: int
    hosts_per_nvlink_domain: int
    hbm_bytes: int
    ddr_bytes: int | None
    intra_host_bw: float
    intra_host_bw_nccl: float | None
    inter_host_bw: float | None
    hbm_bw: float
    hbm_to_ddr_bw: float
    gpu: str
    hbm_basis: str
    confidence: str
    source: str
    gpus: int = 0

    @property
    def domain_size(self) -> int:
        """GPUs joined by the fast interconnect: a host, or an NVLink domain of several hosts."""
        return self.gpus_per_host * self.hosts_per_nvlink_domain

    @property
    def gpus_in_domain(self) -> int:
        """GPUs of this problem in each fast domain."""
        return min(self.gpus, self.domain_size)

    @property
    def domains(self) -> int:
        """Fast domains that the problem's GPUs span."""
        return self.gpus // self.gpus_in_domain

    def mesh_shape(self, ndim: int) -> tuple[int, ...]:
        """Return a mesh over all GPUs: one dimension, or domains first and their GPUs in the rest.

        GPUs of a domain are split by the smallest factor first: 8 become 8, 2 x 4 or 2 x 2 x 2.

        Raises:
            UsageError: there are too few GPUs for so many dimensions.
        """
        if ndim == 1:
            return (self.gpus,)
        shape = [self.domains] if self.domains > 1 else []
        rest = self.gpus_in_domain
        while len(shape) < ndim - 1:
            factor = next((n for n in range(2, rest) if rest % n == 0), None)
            if factor is None:
                break
            shape.append(factor)
            rest //= factor
        if len(shape) < ndim - 1 or rest < 2:
            raise UsageError(
                f"{self.gpus} GPUs in hosts of {self.gpus_in_domain} do not make a mesh of "
                f"{ndim} dimensions with at least 2 GPUs in each."
            )
        return (*shape, rest)

    def sized(self, gpus: int) -> "Topology":
        """Return this machine with `gpus` GPUs.

        Raises:
            UsageError: `gpus` is neither at most one domain nor a whole number of domains, or more
                than any cluster has.
        """
        if gpus < 1:
            raise UsageError(f"Topology '{self.name}' needs at least 1 GPU, not {gpus}.")
        if gpus > MOST_GPUS:
            raise UsageError(f"Topology '{self.name}' can have {MOST_GPUS:,} GPUs at most.")
        if gpus > self.domain_size and gpus % self.domain_size:
            raise UsageError(
                f"Topology '{self.name}' joins {self.domain_size} GPUs at a time: --gpus must be "
                f"at most {self.domain_size} or a multiple of it, not {gpus}."
            )
        return replace(self, gpus=gpus)


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


@cache
def presets() -> dict[str, Topology]:
    """Return the machines that come with shardbench, by name."""
    text = resources.files("harness").joinpath("data/topologies.csv").read_text(encoding="utf-8")
    return read_topologies(text, "topologies.csv")


def captured_topology(
    gpus: int,
    gpus_per_host: int,
    *,
    hosts_per_nvlink_domain: int = 1,
    hbm_bytes: int = 0,
    ddr_bytes: int | None = None,
    intra_host_bw: float = 0.0,
    inter_host_bw: float | None = None,
    hbm_bw: float = 0.0,
    hbm_to_ddr_bw: float = 0.0,
) -> Topology:
    """Return the topology that a captured workload brings, as far as its file tells of machines.

    Units are those of `Topology`; 0 is what a file does not tell. A family that needs more of its
    own machines reads it from its file where it is given a topology of this name.
    """
    return Topology(
        name=CAPTURED,
        gpus_per_host=gpus_per_host,
        hosts_per_nvlink_domain=hosts_per_nvlink_domain,
        hbm_bytes=hbm_bytes,
        ddr_bytes=ddr_bytes,
        intra_host_bw=intra_host_bw,
        intra_host_bw_nccl=None,
        inter_host_bw=inter_host_bw,
        hbm_bw=hbm_bw,
        hbm_to_ddr_bw=hbm_to_ddr_bw,
        gpu="",
        hbm_basis="",
        confidence="captured",
        source="the captured file",
        gpus=gpus,
    )


def find_topology(name: str, gpus: int) -> Topology:
    """Return a preset, or the topology in a CSV file (`FILE.csv` or `FILE.csv#NAME`), sized.

    Raises:
        UsageError: no such topology, an unreadable file, or a number of GPUs it cannot have.
    """
    path, _, wanted = name.partition("#")
    if not path.endswith(".csv"):
        if name not in presets():
            raise unknown("topology", name, presets())
        return presets()[name].sized(gpus)
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: a CSV file must be UTF-8 text.") from None
    found = read_topologies(text, path)
    if wanted:
        if wanted not in found:
            raise unknown(f"topology in {path}", wanted, found)
        return found[wanted].sized(gpus)
    if len(found) > 1:
        raise UsageError(
            f"{path} lists {len(found)} topologies; write {path}#NAME for one of them."
        )
    return next(iter(found.values())).sized(gpus)

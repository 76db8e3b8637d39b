"""What a kind of GPU has by its data sheet: memory, bandwidths and links, with their sources."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from harness.model.errors import UsageError

GB = 1e6
"""Bytes per millisecond in a GB/s, a decimal one, as bandwidths are stored."""

# Raw rate of a lane in GT/s by generation, and what coding leaves of it: 8b/10b, 128b/130b, and
# 242 bytes of each 256 in the flits of the sixth (PCI-SIG's base specifications).
_PCIE = {
    1: (2.5, 0.8),
    2: (5.0, 0.8),
    3: (8.0, 128 / 130),
    4: (16.0, 128 / 130),
    5: (32.0, 128 / 130),
    6: (64.0, 242 / 256),
}


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A row of `data/gpus.csv`: bytes, and bytes per millisecond one way; None is not known."""

    name: str
    aliases: tuple[frozenset[str], ...]
    memory_bytes: int | None
    memory_basis: str
    hbm_bw: float
    nvlinks: int
    nvlink_bw: float | None
    nccl_link_bw: float | None
    host_link_bw: float
    most_per_host: int | None
    domain: int | None
    source: str

    @property
    def all_links_bw(self) -> float | None:
        """What all NVLinks (or xGMI links) of a GPU carry, bytes per millisecond one way."""
        return self.nvlinks * self.nvlink_bw if self.nvlinks and self.nvlink_bw else None

    @property
    def has_own_host_link(self) -> bool:
        """Whether the link to the host is no PCIe, but a CPU's and a GPU's own (NVLink-C2C)."""
        return self.host_link_bw > 2 * pcie_bw(5, 16)


def pcie_bw(generation: int, width: int) -> float:
    """Return what a PCIe link carries, bytes per millisecond one way, without packet overhead.

    Raises:
        UsageError: an unknown generation, or a width that no link has.
    """
    if generation not in _PCIE or width not in (1, 2, 4, 8, 12, 16, 32):
        raise UsageError(f"PCIe generation {generation} x{width} is not known.")
    rate, kept = _PCIE[generation]
    return rate * kept / 8 * width * GB


@cache
def gpu_kinds() -> tuple[GpuKind, ...]:
    """Return the kinds of GPUs whose data sheets are known."""
    text = (resources.files("harness.topologies") / "data/gpus.csv").read_text("utf-8")
    lines = (line for line in io.StringIO(text) if not line.startswith("#"))
    return tuple(_kind(row) for row in csv.DictReader(lines))


def _kind(row: dict[str, str]) -> GpuKind:
    def bandwidth(field: str) -> float | None:
        return float(row[field]) * GB if row[field] else None

    hbm_bw, host_link_bw = bandwidth("hbm_gb_s"), bandwidth("host_link_gb_s")
    assert hbm_bw
    assert host_link_bw
    return GpuKind(
        name=row["gpu"],
        aliases=tuple(frozenset(alias.split()) for alias in row["names"].split("|")),
        memory_bytes=int(row["memory_bytes"]) if row["memory_bytes"] else None,
        memory_basis=row["memory_basis"],
        hbm_bw=hbm_bw,
        nvlinks=int(row["nvlinks"]),
        nvlink_bw=bandwidth("nvlink_gb_s"),
        nccl_link_bw=bandwidth("nccl_link_gb_s"),
        host_link_bw=host_link_bw,
        most_per_host=int(row["most_per_host"]) if row["most_per_host"] else None,
        domain=int(row["domain"]) if row["domain"] else None,
        source=row["source"],
    )


def find_gpu_kind(name: str) -> GpuKind | None:
    """Return the kind that a GPU's name means, however NVML, torch or a file writes it, or None.

    `NVIDIA H100 80GB HBM3`, `H100-SXM5-80GB` and `h100 sxm` mean one kind; `H100` alone may be one
    of several and means none.
    """
    words = set(_words(name))
    found: dict[int, list[GpuKind]] = {}
    for kind in gpu_kinds():
        fitting = [len(alias) for alias in kind.aliases if alias <= words]
        if fitting:
            found.setdefault(max(fitting), []).append(kind)
    best = found[max(found)] if found else []
    return best[0] if len(best) == 1 else None


def _words(name: str) -> Iterator[str]:
    for word in re.findall(r"[A-Z0-9]+", name.upper()):
        # `SXM5` is an SXM, whatever its generation, where a row says no more than that.
        yield word
        if form := re.fullmatch(r"(SXM)\d", word):
            yield form[1]


def require_gpu_kind(name: str) -> GpuKind:
    """Return the kind that a GPU's name means.

    Raises:
        UsageError: none or several; says which are known.
    """
    kind = find_gpu_kind(name)
    if kind is None:
        words = set(_words(name))
        near = [each.name for each in gpu_kinds() if words & set(_words(each.name))]
        if near:
            raise UsageError(f"A GPU '{name}' may be any of {', '.join(near)}: say which.")
        known = ", ".join(each.name for each in gpu_kinds())
        raise UsageError(f"No data sheet is known for a GPU '{name}'; known are: {known}.")
    return kind

"""Data sheets: the memory, bandwidths and links of the known kinds of GPU, with their sources."""

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from harness.model.errors import UsageError
from harness.topologies.csv_files import data_text, read_table

GB = 1e6
"""Bytes per millisecond in a GB/s, a decimal one, as bandwidths are stored."""

# Gbit/s of a lane by generation, as coding leaves them: 8b/10b, 128b/130b, and 242 bytes of each
# 256 in the flits of the sixth (PCI-SIG's base specifications).
_PCIE = {1: 2.0, 2: 4.0, **{n: 2**n * (128 / 130) for n in (3, 4, 5)}, 6: 64 * (242 / 256)}


class GpuKind(msgspec.Struct, frozen=True):
    """A row of `data/gpus.csv`: bytes, and bytes per millisecond one way; None is not known."""

    name: str
    names: str
    hbm_bw: float
    nvlinks: int
    host_link_bw: float
    source: str
    memory_bytes: int | None = None
    memory_basis: str = ""
    nvlink_bw: float | None = None
    nccl_link_bw: float | None = None
    most_per_host: int | None = None
    domain: int | None = None

    @property
    def all_links_bw(self) -> float | None:
        """What all NVLinks (or xGMI links) of a GPU carry, bytes per millisecond one way."""
        return self.nvlinks * self.nvlink_bw if self.nvlinks and self.nvlink_bw else None

    @property
    def has_own_host_link(self) -> bool:
        """Whether a CPU's and a GPU's own link (NVLink-C2C) joins it with the host, not PCIe."""
        return self.host_link_bw > 2 * pcie_bw(5, 16)


def pcie_bw(generation: int, width: int) -> float:
    """Return a PCIe link's bytes/ms one way, without packet overhead, or raise UsageError."""
    if generation not in _PCIE or width not in (1, 2, 4, 8, 12, 16, 32):
        raise UsageError(f"PCIe generation {generation} x{width} is not known.")
    return _PCIE[generation] / 8 * width * GB


@cache
def gpu_kinds() -> tuple[GpuKind, ...]:
    """Return the kinds of GPUs with known data sheets."""
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
    """Return the kind that a GPU's name means, however NVML, torch or a file writes it, or None.

    `NVIDIA H100 80GB HBM3`, `H100-SXM5-80GB` and `h100 sxm` mean one kind; `H100` alone may be one
    of several and means none.
    """
    words = set(_words(name))
    found: dict[int, list[GpuKind]] = {}
    for kind in gpu_kinds():
        aliases = (set(alias.split()) for alias in kind.names.split("|"))
        longest = max((len(alias) for alias in aliases if alias <= words), default=0)
        found.setdefault(longest, []).append(kind)
    best = found[max(found)]
    return best[0] if max(found) and len(best) == 1 else None


def _words(name: str) -> Iterator[str]:
    for word in re.findall(r"[A-Z0-9]+", name.upper()):
        # `SXM5` is an SXM of any generation, for rows that do not name one.
        yield word
        if form := re.fullmatch(r"(SXM)\d", word):
            yield form[1]


def require_gpu_kind(name: str) -> GpuKind:
    """Return the kind that a GPU's name means; raises UsageError, which lists the known ones."""
    if kind := find_gpu_kind(name):
        return kind
    words = set(_words(name))
    if near := [kind.name for kind in gpu_kinds() if words & set(_words(kind.name))]:
        raise UsageError(f"A GPU '{name}' may be any of {', '.join(near)}: say which.")
    known = ", ".join(kind.name for kind in gpu_kinds())
    raise UsageError(f"No data sheet is known for a GPU '{name}'; known are: {known}.")

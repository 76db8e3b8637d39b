"""Data sheets of GPU models: memory, bandwidths and links, with sources."""

import re
from functools import cache

import msgspec

from harness.model.errors import UsageError
from harness.topologies.lookup import data_text, read_table

GB = 1e6
"""Bytes per millisecond in a GB/s, a decimal one, as bandwidths are stored."""


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

"""The cells of a topology one by one: what the loader refuses, and what to write instead."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from harness.model.errors import UsageError
from harness.model.topology import Topology
from harness.topologies.csv_files import Written, read_topologies
from harness.topologies.gpu_kinds import GB, find_gpu_kind
from harness.topologies.lookup import presets

_BANDWIDTHS = ("intra_host_bw", "intra_host_bw_nccl", "inter_host_bw", "hbm_bw", "hbm_to_ddr_bw")
COUNTS = ("gpus_per_host", "hosts_per_nvlink_domain")
_BYTES = ("hbm_bytes", "ddr_bytes")
_REQUIRED = ("name", "gpus_per_host", "hbm_bytes", "intra_host_bw", "hbm_bw", "hbm_to_ddr_bw")
# What torchrec 1.9.2 takes where an argument is left out (its planner/constants.py): one machine's
# memory and another one's NVLink, both ways together.
_TORCHREC_DEFAULTS = {
    "hbm_bytes": "32 GiB",
    "intra_host_bw": "600 GiB/s",
    "hbm_bw": "897 GiB/s",
    "hbm_to_ddr_bw": "32 GiB/s",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a topology, where, and what to write instead."""

    where: str
    column: str
    wrong: str
    write: str


def _row(cells: dict[str, str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([list(cells), list(cells.values())])
    return text.getvalue()


def _sound_cells() -> dict[str, str]:
    """Return the cells of a preset that is in order, to try another cell among them."""
    preset = presets()["dgx_h100"]
    columns = ("name", *COUNTS, *_BYTES, *_BANDWIDTHS)
    return {column: f"{getattr(preset, column)}" for column in columns}


def check_cells(written: Written) -> Iterator[Finding]:
    """Try each cell alone, so that the loader's own rules and words stand for all of them."""
    for column in ("name", *COUNTS, *_BYTES, *_BANDWIDTHS):
        cell = written.cells.get(column, "")
        if not cell.strip():
            yield from _missing(written, column)
            continue
        tried = _sound_cells()
        tried["hosts_per_nvlink_domain" if column == "gpus_per_host" else "gpus_per_host"] = "1"
        tried[column] = cell
        try:
            read_topologies(_row(tried), "")
        except UsageError as error:
            said = str(error).partition(": ")[2].rstrip(".")
            yield Finding(written.where, column, said, _instead(column, cell, written))


def _missing(written: Written, column: str) -> Iterator[Finding]:
    called = written.called(column)
    wanted = _sheet_figure(column, written) or "the machine's own"
    if not written.is_torchrec:
        if column in _REQUIRED:
            yield Finding(written.where, column, f"{called} is missing", wanted)
    elif column == "gpus_per_host":
        if (written.world_size or 1) > 1:
            ranks = f"all {written.world_size} ranks"
            wrong = f"{called} is left out, so torchrec takes {ranks} to be in one host"
            yield Finding(written.where, column, wrong, "the GPUs that NVLink joins")
    elif column in _TORCHREC_DEFAULTS:
        default = _TORCHREC_DEFAULTS[column]
        wrong = f"{called} is left out, so torchrec plans with {default}, whatever the machine is"
        yield Finding(written.where, column, wrong, wanted)


def _sheet_figure(column: str, written: Written) -> str:
    """Return what the data sheet of the row's GPU says, as it would be stored; empty if unknown."""
    kind = find_gpu_kind(written.cells.get("gpu", ""))
    if kind is None:
        return ""
    value = {
        "hbm_bytes": kind.memory_bytes,
        "hbm_bw": kind.hbm_bw,
        "intra_host_bw": kind.all_links_bw or kind.host_link_bw,
        "hbm_to_ddr_bw": kind.host_link_bw / 2,
    }.get(column)
    return f"{value:.0f} ({kind.name})" if value else ""


def _instead(column: str, cell: str, written: Written) -> str:
    """Return what to write for a figure that the loader refuses: the same in the right unit."""
    try:
        value = float(cell)
    except ValueError:
        return "a number"
    factors: tuple[tuple[float, str], ...] = ()
    if column in _BANDWIDTHS:
        factors = ((1e-3, "bytes per second"), (GB, "GB/s"), (1e9, "TB/s"), (1e3, "MB/s"))
    elif column in _BYTES:
        factors = ((2**30, "GiB"), (2**20, "MiB"), (2**40, "TiB"))
    for factor, unit in factors:
        tried = _sound_cells() | {column: f"{value * factor:.0f}"}
        try:
            read_topologies(_row(tried), "")
        except UsageError:
            continue
        sheet = _sheet_figure(column, written)
        return f"{value * factor:.0f}, if {unit} were meant" + (f"; {sheet}" if sheet else "")
    if column in COUNTS:
        return "how many there are, a whole number"
    return _sheet_figure(column, written) or "the machine's own figure"


def as_topology(written: Written, wrong: set[str]) -> Topology:
    """Read what is in order in a row; the rest is a sound preset's, for no look to fall over."""
    cells = _sound_cells() | {"gpu": ""}
    for column, cell in written.cells.items():
        if column in cells and column not in wrong and cell.strip():
            cells[column] = cell
    cells["name"] = "written"
    if (
        "hosts_per_nvlink_domain" in wrong
        or not written.cells.get("hosts_per_nvlink_domain", "").strip()
    ):
        cells["hosts_per_nvlink_domain"] = "1"
    if "gpus_per_host" in wrong:
        cells["gpus_per_host"] = "1"
    try:
        return next(iter(read_topologies(_row(cells), "").values()))
    except UsageError:  # more than 4,096 GPUs in a domain, told by _too_large
        return presets()["dgx_h100"]

"""The links of a host: the matrix of `nvidia-smi topo -m`, its shape, and bandwidths."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, permutations, product
from typing import Literal, NoReturn

from harness.model.errors import UsageError, printable
from harness.topologies.lookup import GpuKind

SELF = "X"
# From near to far; NVLink is nearer than all of these. Drivers before 390 print `SOC` for `SYS`.
PCIE_KINDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_OLD_NAMES = {"SOC": "SYS"}

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_AFFINITIES = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID")
_GPU = re.compile(r"GPU\d+")
_LINK = re.compile(rf"{SELF}|NV\d+|{'|'.join((*PCIE_KINDS, *_OLD_NAMES))}")
_HEADER = re.compile(rf"GPU\d+(?!\S)(?!\s+({_LINK.pattern})(?!\S))")
_NIC_NAME = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*")

JoinedBy = Literal["switch", "pairs", "mesh", "PCIe"]


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """The links between the GPUs and network devices of one host.

    `links` maps each ordered pair of devices to its link type: `X` for a device with itself, `NV4`
    for four NVLinks, or one of `PCIE_KINDS`. Network devices have their names in the operating
    system, such as `mlx5_0`, if the matrix has a legend with them.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    links: Mapping[tuple[str, str], str]

    def nvlinks(self, gpu: str, other: str) -> int:
        """Return the number of NVLinks between two GPUs."""
        return nvlinks_of(self.links[gpu, other])

    def gpu_links(self) -> list[str]:
        """Return the link types of all ordered pairs of GPUs."""
        return [self.links[pair] for pair in permutations(self.gpus, 2)]


def nvlinks_of(link: str) -> int:
    """Return the number of NVLinks in a link type: 4 for `NV4`, 0 for PCIe types."""
    return int(link[2:]) if link.startswith("NV") else 0


def distance(link: str) -> int:
    """Return a sort key for link types, from near to far: 0 for NVLink, 1 to 5 for PCIe types."""
    return 1 + PCIE_KINDS.index(link) if link in PCIE_KINDS else 0


def parse_matrix(text: str, file: str) -> LinkMatrix:
    """Parse the output of `nvidia-smi topo -m`, also as part of a longer text.

    Fields are separated by tabs or spaces. Ignore escape sequences, affinity columns and lines that
    start with `#`. Raise UsageError that names the line if there is no matrix, or if it is
    incomplete, has wrapped lines or contradicts itself.
    """

    def refuse(number: int, wrong: str) -> NoReturn:
        save = "save the whole matrix with `nvidia-smi topo -m > FILE`"
        raise UsageError(f"{file}, line {number}: {wrong}; {save}.")

    lines = [_ESCAPE.sub("", line).strip() for line in text.splitlines()]
    # 1. The header names GPU0 and the other devices; a row would have a link in second place.
    rows = [(at, line) for at, line in enumerate(lines, start=1) if line and line[0] != "#"]
    while rows and not _HEADER.match(rows[0][1]):
        del rows[0]
    if not rows:
        raise UsageError(
            f"{file}: no matrix of `nvidia-smi topo -m` is in it, whose first line names GPU0."
        )
    at, header = rows.pop(0)
    devices = _AFFINITIES.sub("", header).split()
    for device in devices:
        is_name = re.fullmatch(r"\w[\w.:-]*", device) and not _LINK.fullmatch(device)
        if not is_name or devices.count(device) > 1:
            refuse(at, f"'{device}' is no name of a device, or is there twice")
    # 2. A row for each device, with a link to each device; affinities follow.
    table: list[list[str]] = []
    rows += [(len(lines), "")] * len(devices)  # where a matrix ends too early
    for device, (number, line) in zip(devices, rows, strict=False):
        name, *words = line.split() or [""]
        row = [_OLD_NAMES.get(word, word) for word in words[: len(devices)]]
        if name != device or len(row) < len(devices) or not all(map(_LINK.fullmatch, row)):
            refuse(number, f"the row of {device} must be here, with {len(devices)} links")
        table.append(row)
        for position, (other, link) in enumerate(zip(devices[: len(table)], row, strict=False)):
            back = table[position][len(table) - 1]
            if (device == other) != (link == SELF) or back != link:
                refuse(number, f"{device} cannot be joined with {other} by {link} and {back}")
    # 3. The legend has the names of network devices.
    legend = (_NIC_NAME.fullmatch(line) for _, line in rows[len(devices) :])
    names = {match[1]: printable(match[2]) for match in legend if match}
    devices = [names.get(device, device) for device in devices]
    return LinkMatrix(
        gpus=tuple(device for device in devices if _GPU.fullmatch(device)),
        nics=tuple(device for device in devices if not _GPU.fullmatch(device)),
        links=dict(zip(product(devices, devices), chain(*table), strict=True)),
    )


@dataclass(frozen=True, slots=True)
class LinkShape:
    """The structure of the links between the GPUs of a host.

    `islands` are the groups of GPUs that NVLink connects; a GPU without NVLink is a group of one.
    `by` is the connection in a group: a switch, direct links between all pairs, an uneven mesh, or
    only PCIe. `how` describes the structure in words.
    """

    islands: tuple[tuple[str, ...], ...]
    by: JoinedBy
    how: str


def shape_of(matrix: LinkMatrix, kind: GpuKind | None) -> LinkShape:
    """Determine the structure of the links between the GPUs of a host.

    If a pair uses all NVLinks that GPUs of this `kind` have, they lead to a switch and all peers
    share them; otherwise each pair has its own links.
    """
    gpu_links = kind.nvlinks if kind else None
    # 1. Islands: a GPU joins all islands that it has an NVLink to.
    groups: list[set[str]] = []
    for gpu in matrix.gpus:
        joined = [group for group in groups if any(matrix.nvlinks(gpu, other) for other in group)]
        groups = [group for group in groups if group not in joined] + [{gpu}.union(*joined)]
    ordered = [tuple(gpu for gpu in matrix.gpus if gpu in group) for group in groups]
    islands = tuple(sorted(ordered, key=lambda island: matrix.gpus.index(island[0])))
    # 2. What joins the GPUs of an island.
    pairs = [matrix.nvlinks(*pair) for island in islands for pair in permutations(island, 2)]
    if not pairs:
        far = sorted(set(matrix.gpu_links()), key=distance)
        how = f"over PCIe ({', '.join(far)})" if far else "a single GPU"
        return LinkShape(islands, "PCIe", how)
    links, peers = max(pairs), max(map(len, islands)) - 1
    if min(pairs) != links:
        how = "a mesh of NVLinks in which not all pairs are joined alike"
        return LinkShape(islands, "mesh", how)
    how = f"{links} NVLink{'s' if links > 1 else ''} to each peer, "
    if len(islands) > 1:
        how = f"{len(islands)} groups that only PCIe joins; in each {how}"
    if peers > 1 and (links >= gpu_links if gpu_links else links * peers > 18):
        return LinkShape(islands, "switch", f"{how}through a switch")
    return LinkShape(islands, "pairs", f"{how}each pair directly")


def all_to_all_bw(matrix: LinkMatrix, kind: GpuKind | None, pcie_bw: float) -> float:
    """Return the send rate of the slowest GPU in an all-to-all, in bytes/ms one way.

    In an all-to-all, every GPU sends equal shares to all others at once. A planner prices the
    communication inside a host in this way: a rank's bytes / one bandwidth. The share for a peer
    uses the NVLinks of the pair; with a switch, all peers share the GPU's NVLinks; peers without
    NVLink share the GPU's PCIe link. The slowest path determines the rate. The model ignores limits
    of sockets and host bridges, so the rate over `PHB`, `NODE` and `SYS` is an upper bound.

    `kind` has the number and the bandwidth of a GPU's NVLinks; without these, only PCIe counts.
    `pcie_bw` is the bandwidth between a GPU and its host.
    """
    peers = len(matrix.gpus) - 1
    if peers < 1:
        return pcie_bw
    is_switched = shape_of(matrix, kind).by == "switch"
    nvlink_bw = kind.nvlink_bw if kind else None
    rates = []
    for gpu in matrix.gpus:
        links = [matrix.nvlinks(gpu, other) for other in matrix.gpus if other != gpu]
        joined = [count for count in links if count and nvlink_bw]
        if joined and nvlink_bw:
            rates.append(min(joined) * nvlink_bw / (len(joined) if is_switched else 1))
        if unjoined := len(links) - len(joined):
            rates.append(pcie_bw / unjoined)
    return min(rates) * peers


def near_nics(matrix: LinkMatrix, nics: Iterable[str]) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return, by GPU, those of `nics` that are nearest to it, and the type of the link to them."""
    candidates = tuple(nics)
    near = {}
    for gpu in matrix.gpus if candidates else ():
        links = {nic: matrix.links[gpu, nic] for nic in candidates}
        nearest = min(links.values(), key=distance)
        near[gpu] = (tuple(nic for nic in candidates if links[nic] == nearest), nearest)
    return near


def usual_links(
    kind: GpuKind | None, gpus_per_host: int, hosts: int, intra_host_bw: float
) -> JoinedBy | None:
    """Infer from the GPU's data sheet what joins the GPUs of a domain; None if it is not known.

    If the links of a GPU can be shared out equally among its peers in the host, they lead there
    directly. Otherwise they lead to a switch, unless eight GPUs have too few for all their peers:
    then they make a hybrid cube mesh, as in a DGX-1. A card may have no bridge for its links.
    """
    peers = gpus_per_host - 1
    if kind is None:
        return None
    is_card = kind.most_per_host is None
    if not kind.nvlinks or (is_card and intra_host_bw <= kind.host_link_bw):
        return "PCIe"
    if hosts > 1 or peers > 7:
        return "switch"
    if peers and kind.nvlinks % peers == 0:
        return "pairs"
    if kind.nvlinks < peers:
        return "mesh" if peers == 7 else None
    return "switch"

"""The links of a host: the matrix of `nvidia-smi topo -m`, its shape, and bandwidths."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal, NoReturn

from harness.model.errors import UsageError, printable
from harness.model.topology import Topology
from harness.topologies.gpu_kinds import find_gpu_kind

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

    `links` maps each ordered pair of different devices to its link type: `NV4` for four NVLinks, or
    one of `PCIE_KINDS`. `nic_names` maps a network device's name in the matrix to its name in the
    operating system, such as `NIC0` to `mlx5_0`.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    links: Mapping[tuple[str, str], str]
    nic_names: Mapping[str, str] = field(default_factory=dict)

    def link(self, one: str, other: str) -> str:
        """Return the link type of two devices, `X` for a device with itself."""
        return SELF if one == other else self.links[one, other]

    def nvlinks(self, one: str, other: str) -> int:
        """Return the number of NVLinks between two GPUs."""
        return nvlinks_of(self.link(one, other))

    def gpu_links(self) -> list[str]:
        """Return the link types of all ordered pairs of GPUs."""
        return [self.links[pair] for pair in permutations(self.gpus, 2)]

    def name_of(self, nic: str) -> str:
        """Return the operating system's name of a network device, or `nic` if unknown."""
        return self.nic_names.get(nic, nic)


def nvlinks_of(kind: str) -> int:
    """Return the number of NVLinks in a link type: 4 for `NV4`, 0 for PCIe types."""
    return int(kind[2:]) if kind.startswith("NV") else 0


def distance(kind: str) -> int:
    """Return a sort key for link types, from near to far: 0 for NVLink, 1 to 5 for PCIe types."""
    return 1 + PCIE_KINDS.index(kind) if kind in PCIE_KINDS else 0


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
    if len(set(devices)) < len(devices):
        refuse(at, "a device is named twice in the header")
    for device in devices:
        if _LINK.fullmatch(device) or not re.fullmatch(r"\w[\w.:-]*", device):
            refuse(at, f"'{device}' is no name of a device")
    # 2. A row for each device, with a link to each device; affinities follow.
    links: dict[tuple[str, str], str] = {}
    for position, device in enumerate(devices):
        if position == len(rows):
            refuse(len(lines), f"the matrix ends before its row of {device}")
        number, line = rows[position]
        name, *words = line.split()
        kinds = [_OLD_NAMES.get(word, word) for word in words[: len(devices)]]
        if name != device:
            refuse(number, f"the row of {device} must be here, not '{name}'")
        if len(kinds) < len(devices) or not all(map(_LINK.fullmatch, kinds)):
            refuse(number, f"the row of {device} must have {len(devices)} links")
        for other, kind in zip(devices, kinds, strict=True):
            back = links.get((other, device), kind)
            if (device == other) != (kind == SELF) or back != kind:
                refuse(number, f"{device} cannot be joined with {other} by {kind} and {back}")
            links[device, other] = kind
    # 3. The legend has the names of network devices.
    legend = (_NIC_NAME.fullmatch(line) for _, line in rows[len(devices) :])
    return LinkMatrix(
        gpus=tuple(device for device in devices if _GPU.fullmatch(device)),
        nics=tuple(device for device in devices if not _GPU.fullmatch(device)),
        links={pair: kind for pair, kind in links.items() if kind != SELF},
        nic_names={match[1]: printable(match[2]) for match in legend if match},
    )


@dataclass(frozen=True, slots=True)
class LinkShape:
    """The structure of the links between the GPUs of a host.

    `islands` are the groups of GPUs that NVLink connects; a GPU without NVLink is a group of one.
    `by` is the connection in a group: a switch, direct links between all pairs, an uneven mesh, or
    only PCIe. `how` describes the structure in words. `links_per_gpu` is the number of NVLinks that
    a GPU uses with all of its peers, 0 if the GPUs differ or have none.
    """

    islands: tuple[tuple[str, ...], ...]
    by: JoinedBy
    how: str
    links_per_gpu: int

    @property
    def is_whole(self) -> bool:
        """Whether NVLink connects all GPUs of the host."""
        return len(self.islands) == 1 and self.links_per_gpu > 0


def shape_of(matrix: LinkMatrix, gpu_links: int | None) -> LinkShape:
    """Determine the structure of the links between the GPUs of a host.

    `gpu_links` is the number of NVLinks of a GPU, None if unknown. If a pair uses all of these
    links, they lead to a switch and all peers share them; otherwise each pair has its own links.
    """
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
        return LinkShape(islands, "PCIe", how, 0)
    sizes = {len(island) for island in islands}
    links = max(pairs)
    if min(pairs) != links:
        counts = {sum(matrix.nvlinks(one, other) for other in matrix.gpus) for one in matrix.gpus}
        how = "a mesh of NVLinks in which not all pairs are joined alike"
        return LinkShape(islands, "mesh", how, counts.pop() if len(counts) == 1 else 0)
    direct = links * (max(sizes) - 1)
    how = f"{links} NVLink{'s' if links > 1 else ''} to each peer, "
    if len(islands) > 1:
        how = f"{len(islands)} groups that only PCIe joins; in each {how}"
    is_even = len(sizes) == 1
    if max(sizes) > 2 and (links >= gpu_links if gpu_links else direct > 18):
        return LinkShape(islands, "switch", f"{how}through a switch", links * is_even)
    return LinkShape(islands, "pairs", f"{how}each pair directly", direct * is_even)


def all_to_all_bw(
    matrix: LinkMatrix, nvlink_bw: float | None, gpu_links: int | None, pcie_bw: float
) -> float:
    """Return the send rate of the slowest GPU in an all-to-all, in bytes/ms one way.

    In an all-to-all, every GPU sends equal shares to all others at once. A planner prices the
    communication inside a host in this way: a rank's bytes / one bandwidth. The share for a peer
    uses the NVLinks of the pair; with a switch, all peers share the GPU's NVLinks; peers without
    NVLink share the GPU's PCIe link. The slowest path determines the rate. The model ignores limits
    of sockets and host bridges, so the rate over `PHB`, `NODE` and `SYS` is an upper bound.

    `nvlink_bw` is the bandwidth of one NVLink, `gpu_links` the number of NVLinks of a GPU (None if
    unknown), `pcie_bw` the bandwidth between a GPU and its host.
    """
    peers = len(matrix.gpus) - 1
    if peers < 1:
        return pcie_bw
    is_switched = shape_of(matrix, gpu_links).by == "switch"
    rates = []
    for gpu in matrix.gpus:
        links = [matrix.nvlinks(gpu, other) for other in matrix.gpus if other != gpu]
        joined = [count for count in links if count and nvlink_bw]
        if joined and nvlink_bw:
            rates.append(min(joined) * nvlink_bw / (len(joined) if is_switched else 1))
        if unjoined := len(links) - len(joined):
            rates.append(pcie_bw / unjoined)
    return min(rates) * peers


def near_nics(
    matrix: LinkMatrix, nics: Sequence[str] | None = None
) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return, by GPU, the network devices nearest to it and the type of the link to them.

    `nics` limits the choice to these devices of the matrix. The result is empty without devices.
    """
    candidates = [nic for nic in matrix.nics if nics is None or nic in nics]
    near = {}
    for gpu in matrix.gpus if candidates else ():
        kinds = {nic: matrix.link(gpu, nic) for nic in candidates}
        nearest = min(kinds.values(), key=distance)
        near[gpu] = (tuple(nic for nic in candidates if kinds[nic] == nearest), nearest)
    return near


def usual_links(topology: Topology) -> JoinedBy | None:
    """Infer from the GPU's data sheet what joins the GPUs of a domain; None if it is not known.

    If the links of a GPU can be shared out equally among its peers in the host, they lead there
    directly. Otherwise they lead to a switch, unless eight GPUs have too few for all their peers:
    then they make a hybrid cube mesh, as in a DGX-1. A card may have no bridge for its links.
    """
    kind, peers = find_gpu_kind(topology.gpu), topology.gpus_per_host - 1
    if kind is None:
        return None
    is_card = kind.most_per_host is None
    if not kind.nvlinks or (is_card and topology.intra_host_bw <= kind.host_link_bw):
        return "PCIe"
    if topology.hosts_per_nvlink_domain > 1 or peers > 7:
        return "switch"
    if peers and kind.nvlinks % peers == 0:
        return "pairs"
    if kind.nvlinks < peers:
        return "mesh" if peers == 7 else None
    return "switch"

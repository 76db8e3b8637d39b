"""Analyse the links of a host: groups of connected GPUs, and the all-to-all bandwidth."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Literal

from harness.model.topology import Topology
from harness.topologies.gpu_kinds import find_gpu_kind
from harness.topologies.link_matrix import LinkMatrix, distance

JoinedBy = Literal["switch", "pairs", "mesh", "PCIe"]


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
    islands = _islands(matrix)
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


def usual_links(found: Topology) -> JoinedBy | None:
    """Infer from the GPU's data sheet what joins the GPUs of a domain; None if it is not known.

    If the links of a GPU can be shared out equally among its peers in the host, they lead there
    directly. Otherwise they lead to a switch, unless eight GPUs have too few for all their peers:
    then they make a hybrid cube mesh, as in a DGX-1. A card may have no bridge for its links.
    """
    kind, peers = find_gpu_kind(found.gpu), found.gpus_per_host - 1
    if kind is None:
        return None
    is_card = kind.most_per_host is None
    if not kind.nvlinks or (is_card and found.intra_host_bw <= kind.host_link_bw):
        return "PCIe"
    if found.hosts_per_nvlink_domain > 1 or peers > 7:
        return "switch"
    if peers and kind.nvlinks % peers == 0:
        return "pairs"
    if kind.nvlinks < peers:
        return "mesh" if peers == 7 else None
    return "switch"


def linked_pairs(by: JoinedBy, gpus: int) -> list[tuple[int, int]]:
    """Return the pairs of a host's GPUs that links join directly: all, or a cube mesh's."""
    return [
        (one, other)
        for one, other in combinations(range(gpus), 2)
        if by == "pairs" or (by == "mesh" and (one // 4 == other // 4 or one % 4 == other % 4))
    ]


def _islands(matrix: LinkMatrix) -> tuple[tuple[str, ...], ...]:
    islands: list[set[str]] = []
    for gpu in matrix.gpus:
        joined = [group for group in islands if any(matrix.nvlinks(gpu, other) for other in group)]
        islands = [group for group in islands if group not in joined] + [{gpu}.union(*joined)]
    ordered = [tuple(gpu for gpu in matrix.gpus if gpu in island) for island in islands]
    return tuple(sorted(ordered, key=lambda island: matrix.gpus.index(island[0])))


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
    found = {}
    for gpu in matrix.gpus if candidates else ():
        kinds = {nic: matrix.link(gpu, nic) for nic in candidates}
        nearest = min(kinds.values(), key=distance)
        found[gpu] = (tuple(nic for nic in candidates if kinds[nic] == nearest), nearest)
    return found

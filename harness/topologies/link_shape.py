"""The shape of a matrix of links: which GPUs are joined, and the bandwidth of all at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from harness.topologies.link_matrix import LinkMatrix, distance


@dataclass(frozen=True, slots=True)
class LinkShape:
    """How the GPUs of a host are joined.

    `islands` are the groups that NVLink joins, by the GPUs' names; a GPU without NVLink is one of
    its own. In each `by` a switch, directly in pairs, by an uneven mesh, or by no NVLink; `how`
    says all that in words. `links_per_gpu` counts the NVLinks that a GPU uses with all of its
    peers; 0 where the GPUs differ in that, or have none.
    """

    islands: tuple[tuple[str, ...], ...]
    by: Literal["switch", "pairs", "mesh", "PCIe"]
    how: str
    links_per_gpu: int

    @property
    def is_whole(self) -> bool:
        """Whether NVLink joins all GPUs of the host."""
        return len(self.islands) == 1 and self.links_per_gpu > 0


def shape_of(matrix: LinkMatrix, gpu_links: int | None) -> LinkShape:
    """Work out how the GPUs of a host are joined.

    `gpu_links` is how many NVLinks a GPU of this kind has, None if not known. A pair joined by as
    many goes through a switch, where all peers share them; otherwise each pair has its own.
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
    """Return a GPU's rate when all send equal shares to all others at once, bytes/ms one way.

    That is how a planner prices communication inside a host: a rank's bytes over one bandwidth. A
    GPU's share for a peer takes their NVLinks, all at once; where a switch joins them, the peers
    share the GPU's links; what has no NVLink shares the GPU's PCIe link. The slowest path of the
    slowest GPU decides. Sockets and host bridges are taken to be no narrower than the GPU's link,
    so over `PHB`, `NODE` and `SYS` it is an upper bound.

    `nvlink_bw` is one NVLink's, `gpu_links` how many a GPU has (None: not known), `pcie_bw` what
    joins a GPU with its host.
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
    """Return for each GPU the network devices nearest to it, and the kind of link between.

    `nics` limits them to those in use, by the matrix's names. Without any there is no entry.
    """
    candidates = [nic for nic in matrix.nics if nics is None or nic in nics]
    found = {}
    for gpu in matrix.gpus if candidates else ():
        kinds = {nic: matrix.link(gpu, nic) for nic in candidates}
        nearest = min(kinds.values(), key=distance)
        found[gpu] = (tuple(nic for nic in candidates if kinds[nic] == nearest), nearest)
    return found

"""What a matrix of links means to a planner: who is joined with whom, and how fast all at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.topologies.link_matrix import Matrix, distance

_SWITCHED = "through a switch"
_DIRECT = "each pair directly"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the GPUs of a host are joined.

    `islands` are the groups that NVLink joins, by the GPUs' names; a GPU without NVLink is one of
    its own. `how` says it in words. `links_per_gpu` counts the NVLinks that a GPU uses with all of
    its peers; 0 where the GPUs differ in that, or have none.
    """

    islands: tuple[tuple[str, ...], ...]
    how: str
    links_per_gpu: int

    @property
    def is_whole(self) -> bool:
        """Whether NVLink joins all GPUs of the host."""
        return len(self.islands) == 1 and self.links_per_gpu > 0


def shape_of(matrix: Matrix, gpu_links: int | None) -> Shape:
    """Work out how the GPUs of a host are joined.

    `gpu_links` is how many NVLinks a GPU of this kind has, None if not known. A pair joined by as
    many goes through a switch, where all peers share them; otherwise each pair has its own.
    """
    islands = _islands(matrix)
    pairs = [
        matrix.nvlinks(one, other)
        for island in islands
        for one in island
        for other in island
        if one != other
    ]
    if not pairs:
        kinds = {matrix.link(a, b) for a in matrix.gpus for b in matrix.gpus if a != b}
        far = sorted(kinds, key=distance)
        return Shape(islands, f"over PCIe ({', '.join(far)})" if far else "a single GPU", 0)
    size = max(len(island) for island in islands)
    links = max(pairs)
    if min(pairs) != links:
        counts = {sum(matrix.nvlinks(one, other) for other in matrix.gpus) for one in matrix.gpus}
        words = "a mesh of NVLinks in which not all pairs are joined alike"
        return Shape(islands, words, counts.pop() if len(counts) == 1 else 0)
    direct = links * (size - 1)
    is_switched = size > 2 and (links >= gpu_links if gpu_links else direct > 18)
    used = links if is_switched else direct
    how = _SWITCHED if is_switched else _DIRECT
    plural = "s" if links > 1 else ""
    words = f"{links} NVLink{plural} to each peer, {how}"
    if len(islands) > 1:
        words = f"{len(islands)} groups that only PCIe joins; in each {words}"
    alike = len({len(island) for island in islands}) == 1
    return Shape(islands, words, used if alike else 0)


def _islands(matrix: Matrix) -> tuple[tuple[str, ...], ...]:
    left = list(matrix.gpus)
    islands = []
    while left:
        island, border = {left[0]}, [left[0]]
        while border:
            one = border.pop()
            near = [gpu for gpu in left if gpu not in island and matrix.nvlinks(one, gpu)]
            island.update(near)
            border += near
        islands.append(tuple(gpu for gpu in matrix.gpus if gpu in island))
        left = [gpu for gpu in left if gpu not in island]
    return tuple(islands)


def all_to_all_bw(
    matrix: Matrix, nvlink_bw: float | None, gpu_links: int | None, pcie_bw: float
) -> float:
    """Return what a GPU sends when all send equal shares to all others at once, bytes/ms one way.

    That is how torchrec prices communication inside a host: a rank's bytes over one bandwidth. A
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
    shape = shape_of(matrix, gpu_links)
    slowest = min(_sent(matrix, gpu, shape, nvlink_bw, pcie_bw) for gpu in matrix.gpus)
    return slowest * peers


def _sent(matrix: Matrix, gpu: str, shape: Shape, nvlink_bw: float | None, pcie_bw: float) -> float:
    """Return the rate at which a GPU sends to each of its peers alike."""
    links = [matrix.nvlinks(gpu, other) for other in matrix.gpus if other != gpu]
    joined = [count for count in links if count and nvlink_bw]
    rates = []
    if joined and nvlink_bw:
        is_switched = _SWITCHED in shape.how
        rates.append(min(joined) * nvlink_bw / (len(joined) if is_switched else 1))
    if unjoined := len(links) - len(joined):
        rates.append(pcie_bw / unjoined)
    return min(rates)


@dataclass(frozen=True, slots=True)
class NearNics:
    """The network devices nearest to a GPU, and what lies between."""

    gpu: str
    nics: tuple[str, ...]
    kind: str


def near_nics(matrix: Matrix, nics: Sequence[str] | None = None) -> list[NearNics]:
    """Return for each GPU the network devices that are nearest to it; none if there are none.

    `nics` limits them to those in use, by the matrix's names.
    """
    candidates = [nic for nic in matrix.nics if nics is None or nic in nics]
    found = []
    for gpu in matrix.gpus if candidates else ():
        kinds = {nic: matrix.link(gpu, nic) for nic in candidates}
        nearest = min(kinds.values(), key=distance)
        found.append(
            NearNics(gpu, tuple(nic for nic in candidates if kinds[nic] == nearest), nearest)
        )
    return found


def serving_nics(matrix: Matrix, nics: Sequence[str] | None = None) -> list[str]:
    """Return the network devices that are nearest to some GPU, in the matrix's order.

    What has its own GPUs near is for them; others, far from all GPUs, are the host's, for storage
    and management.
    """
    near = near_nics(matrix, nics)
    used = {nic for each in near for nic in each.nics}
    return [nic for nic in matrix.nics if nic in used]

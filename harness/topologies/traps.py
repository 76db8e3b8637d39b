"""The traps of a topology, all at once: what is wrong with it, and what to write instead."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from harness.model.topology import MOST_GPUS, Topology
from harness.topologies.cells import COUNTS, Finding, as_topology, check_cells
from harness.topologies.csv_files import Written
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind

_GIB_FOR_GB = 2**30 / 1e9
_MOST_HOST_MEMORY = 2**42
# 800 Gbit/s: more than one network device carries, and no GPU of the presets has two of them.
_MOST_INTER = 100 * GB


def check(written: Written, gpus: int | None = None) -> list[Finding]:
    """Return every trap of a topology that is known here; nothing where it is clean.

    `gpus` is the number of GPUs it is to be used with, None if not said.
    """
    found = list(check_cells(written))
    sound = as_topology(written, {finding.column for finding in found})
    gpus = written.world_size if gpus is None else gpus
    kind = find_gpu_kind(sound.gpu)
    has = {column for column, cell in written.cells.items() if cell.strip()}
    has -= {finding.column for finding in found}
    for look in _LOOKS:
        found += [
            replace(finding, where=written.where, column=written.called(finding.column))
            for finding in look(_Case(written, sound, kind, has, gpus))
        ]
    return [replace(finding, column=written.called(finding.column)) for finding in found]


@dataclass(frozen=True, slots=True)
class _Case:
    """What a look sees: the row as read, the kind of GPU, and which columns are in order."""

    written: Written
    read: Topology
    kind: GpuKind | None
    has: set[str]
    gpus: int | None

    def found(self, column: str, wrong: str, write: str) -> Finding:
        return Finding("", column, wrong, write)


def _both_ways(case: _Case) -> Iterator[Finding]:
    """An intra-host bandwidth above what the GPU's links carry one way."""
    for column in ("intra_host_bw", "intra_host_bw_nccl"):
        value = getattr(case.read, column)
        if case.kind is None or column not in case.has:
            continue
        one_way = case.kind.all_links_bw or case.kind.host_link_bw
        over = value / one_way
        what = f"{case.kind.name} sends {one_way / GB:.4g} GB/s one way"
        if over <= 1.03:
            continue
        if abs(over - 2) < 0.06 or abs(over - 2 * _GIB_FOR_GB) < 0.06:
            why = f"{value / GB:.4g} GB/s is both ways together: {what}"
        elif abs(over - _GIB_FOR_GB) < 0.02:
            why = f"{value / GB:.4g} GB/s is the data sheet's figure taken for GiB/s: {what}"
        else:
            why = f"{value / GB:.4g} GB/s is more than the GPU has links for: {what}"
        yield case.found(column, why, f"{one_way:.0f}")


def _hbm(case: _Case) -> Iterator[Finding]:
    if case.kind is None:
        return
    if "hbm_bw" in case.has:
        ratio = case.read.hbm_bw / case.kind.hbm_bw
        sheet = f"the data sheet of {case.kind.name} says {case.kind.hbm_bw / GB:,.0f} GB/s"
        if abs(ratio - _GIB_FOR_GB) < 0.01:
            yield case.found("hbm_bw", f"GB/s taken for GiB/s: {sheet}", f"{case.kind.hbm_bw:.0f}")
        elif not 0.9 <= ratio <= 1.1:
            side = "above" if ratio > 1 else "below"
            wrong = f"{case.read.hbm_bw / GB:,.0f} GB/s is {side} what the GPU has: {sheet}"
            yield case.found("hbm_bw", wrong, f"{case.kind.hbm_bw:.0f}")
    memory = case.kind.memory_bytes
    if memory and "hbm_bytes" in case.has:
        ratio = case.read.hbm_bytes / memory
        if not 0.95 <= ratio <= 1.008:
            side = "more than" if ratio > 1 else f"{1 - ratio:.0%} less than"
            wrong = f"{case.read.hbm_bytes} bytes are {side} a program sees of {case.kind.name}"
            yield case.found("hbm_bytes", wrong, f"{memory} ({case.kind.memory_basis})")


def _to_host(case: _Case) -> Iterator[Finding]:
    if case.kind is None or "hbm_to_ddr_bw" not in case.has:
        return
    link = case.kind.host_link_bw
    value = case.read.hbm_to_ddr_bw
    if value <= 0.55 * link:
        return
    whole = f"{link / GB:.4g} GB/s one way join {case.kind.name} with its host"
    why = "both ways together" if value > 1.5 * link else "the whole link"
    wrong = f"{value / GB:.4g} GB/s is {why}: {whole}, and the network shares them"
    yield case.found("hbm_to_ddr_bw", wrong, f"{link / 2:.0f}, half of it (pytorch/torchrec#2589)")


def _order(case: _Case) -> Iterator[Finding]:
    inter = case.read.inter_host_bw
    if inter is None or "inter_host_bw" not in case.has:
        return
    if inter > _MOST_INTER:
        wrong = (
            f"{inter / GB:.4g} GB/s for each GPU is more than any network device carries; it looks "
            "like Gbit/s, or like a whole host's"
        )
        choices = f"{inter / 8:.0f} if Gbit/s were meant"
        if case.read.gpus_per_host > 1:
            choices += f", {inter / case.read.gpus_per_host:.0f} if it is the host's"
        yield case.found("inter_host_bw", wrong, choices)
    if "intra_host_bw" in case.has and inter > case.read.intra_host_bw:
        wrong = (
            f"{inter / GB:.4g} GB/s between hosts is more than {case.read.intra_host_bw / GB:.4g} "
            "inside one"
        )
        yield case.found("inter_host_bw", wrong, "a GPU's share of the host's network devices")


def _host_memory(case: _Case) -> Iterator[Finding]:
    per_gpu = case.read.ddr_bytes
    if per_gpu is None or "ddr_bytes" not in case.has or "gpus_per_host" not in case.has:
        return
    most = case.kind.most_per_host if case.kind else None
    count = min(case.read.gpus_per_host, most or case.read.gpus_per_host)
    if per_gpu * count > _MOST_HOST_MEMORY:
        wrong = (
            f"{per_gpu / 2**30:,.0f} GiB for each of {count} GPUs makes "
            f"{per_gpu * count / 2**40:,.1f} TiB in a host: it is the host's memory, not a GPU's"
        )
        yield case.found("ddr_bytes", wrong, f"{per_gpu // count}, the host's over its GPUs")


def _counts(case: _Case) -> Iterator[Finding]:
    count, kind = case.read.gpus_per_host, case.kind
    if kind is None or "gpus_per_host" not in case.has or kind.most_per_host is None:
        return
    hosts = case.read.hosts_per_nvlink_domain
    if count > kind.most_per_host and not case.written.is_torchrec:
        wrong = f"a host has at most {kind.most_per_host} {kind.name}, not {count}"
        whole = count * hosts
        write = f"{kind.most_per_host}"
        if kind.domain and whole % kind.most_per_host == 0:
            write += f", and hosts_per_nvlink_domain={whole // kind.most_per_host}"
        yield case.found("gpus_per_host", wrong, write)
    elif kind.domain and count * hosts < kind.domain and hosts == 1:
        left = kind.domain // count
        wrong = (
            f"the {count} {kind.name} of a host are a part of an NVLink domain of up to "
            f"{kind.domain}; so written, all beyond the host is planned at inter_host_bw"
        )
        if case.written.is_torchrec:
            yield case.found("gpus_per_host", wrong, f"local_world_size={count * left}")
        else:
            yield case.found("hosts_per_nvlink_domain", wrong, f"{left}, for a whole rack")
    elif kind.domain and count * hosts > kind.domain:
        wrong = f"{count} x {hosts} GPUs are more than the {kind.domain} of an NVLink domain"
        yield case.found("hosts_per_nvlink_domain", wrong, f"{max(1, kind.domain // count)}")


def _pod_size(case: _Case) -> Iterator[Finding]:
    hosts = case.read.hosts_per_nvlink_domain
    if not case.written.is_torchrec or hosts <= 1 or "gpus_per_host" not in case.has:
        return
    local, domain = case.read.gpus_per_host, case.read.domain_size
    wrong = (
        f"pod_size changes no bandwidth in torchrec 1.9.2: with local_world_size={local}, what "
        f"more than {local} ranks exchange is planned at inter_host_bw, though NVLink joins "
        f"{domain}"
    )
    fits = f"local_world_size={domain}, without pod_size"
    if case.gpus and domain > case.gpus:
        wrong += (
            f"; and the {domain} GPUs of a domain are more than the world of {case.gpus}, so "
            "table-row-wise sharding finds no place at all"
        )
        fits = f"local_world_size={case.gpus}, without pod_size"
    yield case.found("hosts_per_nvlink_domain", wrong, fits)


def _world(case: _Case) -> Iterator[Finding]:
    gpus, domain = case.gpus, case.read.domain_size
    if gpus is None or not {"gpus_per_host"} <= case.has:
        return
    column = "gpus_per_host" if case.read.hosts_per_nvlink_domain == 1 else COUNTS[1]
    hosts = -(-gpus // case.read.gpus_per_host)
    if gpus > MOST_GPUS:
        yield case.found(column, f"{gpus:,} GPUs are more than any cluster has", "fewer")
    elif case.read.hosts_per_nvlink_domain > 1 and domain > gpus:
        if not case.written.is_torchrec:
            wrong = f"a domain of {domain} GPUs is larger than the world of {gpus}"
            yield case.found(column, wrong, f"{hosts}, the hosts that the job has in the domain")
    elif case.written.is_torchrec and domain > gpus:
        wrong = f"local_world_size={domain} is larger than the world of {gpus}"
        yield case.found(column, wrong, f"local_world_size={gpus}")
    elif gpus > domain and gpus % domain:
        wrong = f"{gpus} GPUs are no whole number of domains of {domain}"
        near = f"{gpus // domain * domain} or {-(-gpus // domain) * domain} GPUs"
        yield case.found(column, wrong, near)
    if gpus > domain and not case.written.cells.get("inter_host_bw", "").strip():
        wrong = (
            f"{gpus} GPUs make more than one domain of {domain}, but inter_host_bw is not given, "
            "so torchrec plans with 12.5 GiB/s"
        )
        share = "a GPU's share of the network, 12500000 for 100 Gbit/s"
        yield case.found("inter_host_bw", wrong, share)


def _part_of_a_mesh(case: _Case) -> Iterator[Finding]:
    """A part of a machine whose GPUs each have their own links to each other, without a switch."""
    kind, gpus = case.kind, case.gpus
    if not kind or not kind.all_links_bw or kind.name != "MI300X" or not gpus or gpus < 2:
        return
    if gpus < case.read.gpus_per_host and "intra_host_bw" in case.has:
        used = kind.all_links_bw / kind.nvlinks * (gpus - 1)
        if case.read.intra_host_bw > 1.03 * used:
            wrong = (
                f"{gpus} of {case.read.gpus_per_host} {kind.name} use {gpus - 1} of each GPU's "
                f"{kind.nvlinks} links, so they exchange {used / GB:.4g} GB/s"
            )
            yield case.found("intra_host_bw", wrong, f"{used:.0f}")


_LOOKS: tuple[Callable[[_Case], Iterator[Finding]], ...] = (
    _counts,
    _pod_size,
    _world,
    _both_ways,
    _part_of_a_mesh,
    _order,
    _hbm,
    _to_host,
    _host_memory,
)

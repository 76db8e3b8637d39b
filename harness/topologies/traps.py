"""Find all traps of a topology: figures that mislead a planner, each with a correction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from harness.contract.abilities.topology import LibraryTopology, TopologyRow, TopologyTrap
from harness.model.topology import MOST_GPUS
from harness.topologies.csv_files import COLUMNS, read_values
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind

_GIB_FOR_GB = 2**30 / 1e9
_MOST_HOST_MEMORY = 2**42
# 800 Gbit/s, the most that a network device carries; no GPU of the presets has two devices.
_MOST_INTER = 100 * GB


@dataclass(frozen=True, slots=True)
class _Case:
    """A topology row to check, with the values of its valid columns.

    `local` is the number of GPUs of a host, 0 if invalid; `hosts` is the number of hosts in an
    NVLink domain. `gpus` is the number of GPUs to use, 0 if unknown. `libraries` will use the row.
    """

    row: TopologyRow
    values: Mapping[str, Any]
    local: int
    hosts: int
    gpus: int
    libraries: Sequence[LibraryTopology]


def find_traps(
    row: TopologyRow, gpus: int | None = None, libraries: Sequence[LibraryTopology] = ()
) -> list[TopologyTrap]:
    """Return all traps of a topology in the order of columns; an empty list if there are none.

    `gpus` is the number of GPUs to use, by default the row's. A row of a topology file is checked
    for all `libraries`, a row from the arguments of a library only for that library.
    """
    gpus = row.gpus if gpus is None else gpus
    kind = find_gpu_kind(row.texts.get("gpu", ""))
    values, refused = read_values(row.texts)
    local, hosts = values.get("gpus_per_host", 0), values.get("hosts_per_nvlink_domain", 1)
    libraries = [row.library] if row.library else libraries
    case = _Case(row, values, local, hosts, gpus or 0, libraries)
    traps = [*_refusals(row, refused, kind), *_network(case), *_host_memory(case, kind)]
    if case.gpus and local:
        traps += _world(case)
    if kind:
        for check in (_counts, _both_ways, _part_of_a_mesh, _memory, _host_link):
            traps += check(case, kind)
    if row.library:
        traps += row.library.traps(row, values, gpus)
    traps.sort(key=lambda trap: list(COLUMNS).index(trap.column))
    return [replace(trap, column=row.called(trap.column)) for trap in traps]


def _refusals(
    row: TopologyRow, refused: Mapping[str, tuple[str, str]], kind: GpuKind | None
) -> Iterator[TopologyTrap]:
    """Find invalid fields, and missing fields for which a library uses a misleading default."""
    sheet: dict[str, float | None] = {}
    if kind:
        sheet = {
            "hbm_bytes": kind.memory_bytes,
            "hbm_bw": kind.hbm_bw,
            "intra_host_bw": kind.all_links_bw or kind.host_link_bw,
            "hbm_to_ddr_bw": kind.host_link_bw / 2,
        }
    for column, (wrong, in_unit) in refused.items():
        if not row.texts.get(column) and row.library:
            if column not in row.library.defaults:
                continue
            plans = f"{row.library.library} plans with {row.library.defaults[column]}"
            wrong = f"is left out, so {plans}, whatever the machine is"
        value = sheet.get(column)
        figure = f"{value:.0f} ({kind.name})" if value and kind else ""
        write = "; ".join(filter(None, (in_unit, figure))) or "the machine's own"
        yield TopologyTrap(column, wrong, write)


def _world(case: _Case) -> Iterator[TopologyTrap]:
    """Find a number of GPUs that does not fit the topology, or needs a missing `inter_host_bw`."""
    gpus, local, hosts, domain = case.gpus, case.local, case.hosts, case.local * case.hosts
    column = "gpus_per_host" if hosts == 1 else "hosts_per_nvlink_domain"
    argument = case.row.called("gpus_per_host")
    if gpus > MOST_GPUS:
        yield TopologyTrap(column, f"{gpus:,} GPUs are more than any cluster has", "fewer")
    elif domain > gpus and hosts > 1 and not case.row.library:
        wrong = f"a domain of {domain} GPUs is larger than the world of {gpus}"
        yield TopologyTrap(column, wrong, f"{-(-gpus // local)}, the hosts of the job")
    elif local > gpus and hosts == 1 and case.row.library:
        wrong = f"{argument}={local} is larger than the world of {gpus}"
        yield TopologyTrap(column, wrong, f"{argument}={gpus}")
    elif gpus > domain and gpus % domain:
        wrong = f"{gpus} GPUs are no whole number of domains of {domain}"
        near = f"{gpus // domain * domain} or {-(-gpus // domain) * domain} GPUs"
        yield TopologyTrap(column, wrong, near)
    column = "inter_host_bw"
    if gpus > domain and not case.row.texts.get(column):
        wrong = f"{gpus} GPUs make more than one domain of {domain}, but {column} is not given"
        for library in case.libraries:
            if column in library.defaults:
                wrong += f", so {library.library} plans with {library.defaults[column]}"
        yield TopologyTrap(column, wrong, "a GPU's share of the network, 12500000 for 100 Gbit/s")


def _network(case: _Case) -> Iterator[TopologyTrap]:
    column, inter = "inter_host_bw", case.values.get("inter_host_bw", 0)
    if inter > _MOST_INTER:
        wrong = (
            f"{inter / GB:.4g} GB/s for each GPU is more than any network device carries; it looks "
            "like Gbit/s, or like a whole host's"
        )
        write = f"{inter / 8:.0f} if Gbit/s were meant"
        write += f", {inter / case.local:.0f} if it is the host's" if case.local > 1 else ""
        yield TopologyTrap(column, wrong, write)
    intra = case.values.get("intra_host_bw", inter)
    if inter > intra:
        wrong = f"{inter / GB:.4g} GB/s between hosts is more than {intra / GB:.4g} inside one"
        yield TopologyTrap(column, wrong, "a GPU's share of the host's network devices")


def _host_memory(case: _Case, kind: GpuKind | None) -> Iterator[TopologyTrap]:
    share = case.values.get("ddr_bytes", 0)
    count = min(case.local, (kind and kind.most_per_host) or case.local)
    if share * count > _MOST_HOST_MEMORY:
        wrong = (
            f"{share / 2**30:,.0f} GiB for each of {count} GPUs makes {share * count / 2**40:,.1f} "
            "TiB in a host: it is the host's memory, not a GPU's"
        )
        yield TopologyTrap("ddr_bytes", wrong, f"{share // count}, the host's over its GPUs")


def _counts(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """Find more GPUs than a host or NVLink domain has, or a domain declared as single hosts."""
    count, most, hosts, library = case.local, kind.most_per_host, case.hosts, case.row.library
    column = "hosts_per_nvlink_domain"
    if not count or not most:
        return
    if count > most and not library:
        wrong = f"a host has at most {most} {kind.name}, not {count}"
        is_domain = kind.domain and count * hosts % most == 0
        also = f", and {column}={count * hosts // most}" if is_domain else ""
        yield TopologyTrap("gpus_per_host", wrong, f"{most}{also}")
    elif kind.domain and count < kind.domain and hosts == 1:
        left = kind.domain // count
        wrong = (
            f"the {count} {kind.name} of a host are a part of an NVLink domain of up to "
            f"{kind.domain}; so written, all beyond the host is planned at inter_host_bw"
        )
        write = f"{left}, for a whole rack"
        if library:
            column = "gpus_per_host"
            write = f"{case.row.called(column)}={count * left}"
        yield TopologyTrap(column, wrong, write)
    elif kind.domain and count * hosts > kind.domain:
        wrong = f"{count} x {hosts} GPUs are more than the {kind.domain} of an NVLink domain"
        yield TopologyTrap(column, wrong, f"{max(1, kind.domain // count)}")


def _both_ways(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """Find an intra-host bandwidth above the one-way bandwidth of the GPU's links."""
    one_way = kind.all_links_bw or kind.host_link_bw
    for column in ("intra_host_bw", "intra_host_bw_nccl"):
        value = case.values.get(column, 0)
        over = value / one_way
        if over <= 1.03:
            continue
        why = "more than the GPU has links for"
        if abs(over - 2) < 0.06 or abs(over - 2 * _GIB_FOR_GB) < 0.06:
            why = "both ways together"
        elif abs(over - _GIB_FOR_GB) < 0.02:
            why = "the data sheet's figure taken for GiB/s"
        wrong = f"{value / GB:.4g} GB/s is {why}: {kind.name} sends {one_way / GB:.4g} GB/s one way"
        yield TopologyTrap(column, wrong, f"{one_way:.0f}")


def _part_of_a_mesh(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """Find an `intra_host_bw` that counts all links of a GPU although a job uses only some.

    In a host without a switch (MI300X), a job on part of the GPUs uses only the links among them.
    """
    gpus, count, column = case.gpus, case.local, "intra_host_bw"
    used = (kind.nvlink_bw or 0) * (gpus - 1)
    if kind.name == "MI300X" and 2 <= gpus < count and case.values.get(column, 0) > 1.03 * used:
        wrong = (
            f"{gpus} of {count} {kind.name} use {gpus - 1} of each GPU's {kind.nvlinks} links, "
            f"so they exchange {used / GB:.4g} GB/s"
        )
        yield TopologyTrap(column, wrong, f"{used:.0f}")


def _memory(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """Find a memory size or bandwidth that differs from the GPU's data sheet."""
    value = case.values.get("hbm_bw", kind.hbm_bw)
    ratio = value / kind.hbm_bw
    is_gib = abs(ratio - _GIB_FOR_GB) < 0.01
    if is_gib or not 0.9 <= ratio <= 1.1:
        side = "above" if ratio > 1 else "below"
        why = f"{value / GB:,.0f} GB/s is {side} what the GPU has"
        why = "GB/s taken for GiB/s" if is_gib else why
        wrong = f"{why}: the data sheet of {kind.name} says {kind.hbm_bw / GB:,.0f} GB/s"
        yield TopologyTrap("hbm_bw", wrong, f"{kind.hbm_bw:.0f}")
    size, memory = case.values.get("hbm_bytes"), kind.memory_bytes
    if size and memory and not 0.95 <= (ratio := size / memory) <= 1.008:
        side = "more than" if ratio > 1 else f"{1 - ratio:.0%} less than"
        wrong = f"{size} bytes are {side} a program sees of {kind.name}"
        yield TopologyTrap("hbm_bytes", wrong, f"{memory} ({kind.memory_basis})")


def _host_link(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    column, link = "hbm_to_ddr_bw", kind.host_link_bw
    value = case.values.get(column, 0)
    if value > 0.55 * link:
        why = "both ways together" if value > 1.5 * link else "the whole link"
        whole = f"{link / GB:.4g} GB/s one way join {kind.name} with its host"
        wrong = f"{value / GB:.4g} GB/s is {why}: {whole}, and the network shares them"
        sources = [lib.sources[column] for lib in case.libraries if column in lib.sources]
        cited = f" ({', '.join(sources)})" if sources else ""
        yield TopologyTrap(column, wrong, f"{link / 2:.0f}, half of it{cited}")

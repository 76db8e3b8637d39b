"""Find all traps of a topology: figures that mislead a planner, each with a correction."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from harness.contract.abilities import LibraryTopology, TopologyRow, TopologyTrap
from harness.model.topology import MOST_GPUS
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind
from harness.topologies.lookup import COLUMNS, read_values

_GIB_FOR_GB = 2**30 / 1e9
_MOST_HOST_MEMORY = 2**42
# 800 Gbit/s, the most that a network device carries; no GPU of the presets has two devices.
_MOST_INTER = 100 * GB

Traps = Iterator[TopologyTrap]
Values = Mapping[str, Any]


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
    traps = [*_refusals(row, refused, kind), *_network(values), *_host_memory(values, kind)]
    if gpus and values.get("gpus_per_host"):
        traps += _world(row, values, gpus, [row.library] if row.library else libraries)
    if kind:
        traps += [*_counts(row, values, kind), *_links(values, kind, gpus or 0)]
        traps += _memory(values, kind)
    if row.library:
        traps += row.library.traps(row, values, gpus)
    traps.sort(key=lambda trap: list(COLUMNS).index(trap.column))
    return [replace(trap, column=row.called(trap.column)) for trap in traps]


def _refusals(row: TopologyRow, refused: dict[str, tuple[str, str]], kind: GpuKind | None) -> Traps:
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


def _world(
    row: TopologyRow, values: Values, gpus: int, libraries: Sequence[LibraryTopology]
) -> Traps:
    """Find a number of GPUs that does not fit the topology, or needs a missing `inter_host_bw`."""
    local, hosts = values["gpus_per_host"], values.get("hosts_per_nvlink_domain", 1)
    domain = local * hosts
    column = "gpus_per_host" if hosts == 1 else "hosts_per_nvlink_domain"
    if gpus > MOST_GPUS:
        yield TopologyTrap(column, f"{gpus:,} GPUs are more than any cluster has", "fewer")
    elif domain > gpus and hosts > 1 and not row.library:
        wrong = f"a domain of {domain} GPUs is larger than the world of {gpus}"
        yield TopologyTrap(column, wrong, f"{-(-gpus // local)}, the hosts of the job")
    elif local > gpus and hosts == 1 and row.library:
        argument = row.called("gpus_per_host")
        wrong = f"{argument}={local} is larger than the world of {gpus}"
        yield TopologyTrap(column, wrong, f"{argument}={gpus}")
    elif gpus > domain and gpus % domain:
        wrong = f"{gpus} GPUs are no whole number of domains of {domain}"
        near = f"{gpus // domain * domain} or {-(-gpus // domain) * domain} GPUs"
        yield TopologyTrap(column, wrong, near)
    if gpus > domain and not row.texts.get("inter_host_bw"):
        wrong = f"{gpus} GPUs make more than one domain of {domain}, but inter_host_bw is not given"
        for library in libraries:
            if default := library.defaults.get("inter_host_bw"):
                wrong += f", so {library.library} plans with {default}"
        write = "a GPU's share of the network, 12500000 for 100 Gbit/s"
        yield TopologyTrap("inter_host_bw", wrong, write)


def _network(values: Values) -> Traps:
    """Find a network's speed in Gbit/s, of a whole host, or above the links inside one."""
    inter, local = values.get("inter_host_bw", 0), values.get("gpus_per_host", 0)
    if inter > _MOST_INTER:
        wrong = (
            f"{inter / GB:.4g} GB/s for each GPU is more than any network device carries; it looks "
            "like Gbit/s, or like a whole host's"
        )
        write = f"{inter / 8:.0f} if Gbit/s were meant"
        write += f", {inter / local:.0f} if it is the host's" if local > 1 else ""
        yield TopologyTrap("inter_host_bw", wrong, write)
    intra = values.get("intra_host_bw", inter)
    if inter > intra:
        wrong = f"{inter / GB:.4g} GB/s between hosts is more than {intra / GB:.4g} inside one"
        write = "a GPU's share of the host's network devices"
        yield TopologyTrap("inter_host_bw", wrong, write)


def _host_memory(values: Values, kind: GpuKind | None) -> Traps:
    most = kind.most_per_host if kind else None
    share, count = values.get("ddr_bytes", 0), values.get("gpus_per_host", 0)
    count = min(count, most or count)
    if share * count > _MOST_HOST_MEMORY:
        wrong = (
            f"{share / 2**30:,.0f} GiB for each of {count} GPUs makes {share * count / 2**40:,.1f} "
            "TiB in a host: it is the host's memory, not a GPU's"
        )
        yield TopologyTrap("ddr_bytes", wrong, f"{share // count}, the host's over its GPUs")


def _counts(row: TopologyRow, values: Values, kind: GpuKind) -> Traps:
    """Find more GPUs than a host or NVLink domain has, or a domain declared as single hosts."""
    count, most, domain = values.get("gpus_per_host", 0), kind.most_per_host, kind.domain
    hosts, column = values.get("hosts_per_nvlink_domain", 1), "hosts_per_nvlink_domain"
    if count and most and count > most and not row.library:
        wrong = f"a host has at most {most} {kind.name}, not {count}"
        is_domain = domain and count * hosts % most == 0
        also = f", and {column}={count * hosts // most}" if is_domain else ""
        yield TopologyTrap("gpus_per_host", wrong, f"{most}{also}")
    elif count and domain and count < domain and hosts == 1:
        wrong = (
            f"the {count} {kind.name} of a host are a part of an NVLink domain of up to {domain}; "
            "so written, all beyond the host is planned at inter_host_bw"
        )
        write = f"{domain // count}, for a whole rack"
        if row.library:
            column = "gpus_per_host"
            write = f"{row.called(column)}={domain}"
        yield TopologyTrap(column, wrong, write)
    elif count and domain and count * hosts > domain:
        wrong = f"{count} x {hosts} GPUs are more than the {domain} of an NVLink domain"
        yield TopologyTrap(column, wrong, f"{max(1, domain // count)}")


def _links(values: Values, kind: GpuKind, gpus: int) -> Traps:
    """Find bandwidths above what a GPU's links carry one way, to other GPUs or to the host."""
    one_way = kind.all_links_bw or kind.host_link_bw
    for column in ("intra_host_bw", "intra_host_bw_nccl"):
        value = values.get(column, 0)
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
    # In a host without a switch (MI300X), a job on part of the GPUs uses only links among them.
    column, count = "intra_host_bw", values.get("gpus_per_host", 0)
    used = (kind.nvlink_bw or 0) * (gpus - 1)
    if kind.name == "MI300X" and 2 <= gpus < count and values.get(column, 0) > 1.03 * used:
        wrong = (
            f"{gpus} of {count} {kind.name} use {gpus - 1} of each GPU's {kind.nvlinks} links, "
            f"so they exchange {used / GB:.4g} GB/s"
        )
        yield TopologyTrap(column, wrong, f"{used:.0f}")
    column, link = "hbm_to_ddr_bw", kind.host_link_bw
    if (value := values.get(column, 0)) > 0.55 * link:
        why = "both ways together" if value > 1.5 * link else "the whole link"
        whole = f"{link / GB:.4g} GB/s one way join {kind.name} with its host"
        wrong = f"{value / GB:.4g} GB/s is {why}: {whole}, and the network shares them"
        yield TopologyTrap(column, wrong, f"{link / 2:.0f}, half of it")


def _memory(values: Values, kind: GpuKind) -> Traps:
    """Find a memory size or bandwidth that differs from the GPU's data sheet."""
    value = values.get("hbm_bw", kind.hbm_bw)
    ratio = value / kind.hbm_bw
    is_gib = abs(ratio - _GIB_FOR_GB) < 0.01
    if is_gib or not 0.9 <= ratio <= 1.1:
        side = "above" if ratio > 1 else "below"
        why = f"{value / GB:,.0f} GB/s is {side} what the GPU has"
        why = "GB/s taken for GiB/s" if is_gib else why
        wrong = f"{why}: the data sheet of {kind.name} says {kind.hbm_bw / GB:,.0f} GB/s"
        yield TopologyTrap("hbm_bw", wrong, f"{kind.hbm_bw:.0f}")
    size, memory = values.get("hbm_bytes"), kind.memory_bytes
    if size and memory and not 0.95 <= (ratio := size / memory) <= 1.008:
        side = "more than" if ratio > 1 else f"{1 - ratio:.0%} less than"
        wrong = f"{size} bytes are {side} a program sees of {kind.name}"
        yield TopologyTrap("hbm_bytes", wrong, f"{memory} ({kind.memory_basis})")

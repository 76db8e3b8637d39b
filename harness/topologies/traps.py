"""The traps of a topology, all at once: what is wrong with it, and what to write instead."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from harness.model.topology import MOST_GPUS, Topology
from harness.model.topology_checks import LibraryTopology, TopologyRow, TopologyTrap
from harness.topologies.csv_files import COLUMNS, REQUIRED, read_cells
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind
from harness.topologies.lookup import presets

_GIB_FOR_GB = 2**30 / 1e9
_MOST_HOST_MEMORY = 2**42
# 800 Gbit/s: more than one network device carries, and no GPU of the presets has two of them.
_MOST_INTER = 100 * GB


@dataclass(frozen=True, slots=True)
class _Case:
    """A row as far as it is sound: `topology` holds the `values` of its sound columns.

    `gpus` is None if not said; `libraries` are those that plan with it.
    """

    row: TopologyRow
    values: dict[str, Any]
    topology: Topology
    gpus: int | None
    libraries: Sequence[LibraryTopology]


def find_traps(
    row: TopologyRow, gpus: int | None = None, libraries: Sequence[LibraryTopology] = ()
) -> list[TopologyTrap]:
    """Return every trap of a topology that is known here; nothing where it is clean.

    `gpus` is the number of GPUs it is to be used with, None if not said. Rows of files are for all
    `libraries`.
    """
    gpus = row.gpus if gpus is None else gpus
    kind = find_gpu_kind(row.cells.get("gpu", ""))
    values, refused = read_cells(row.cells)
    # A preset's figures stand where the row has no sound ones, so that the others can be checked.
    sound = replace(presets()["dgx_h100"], **{"gpus_per_host": 1, **values})
    case = _Case(row, values, sound, gpus, [row.library] if row.library else libraries)
    traps = [
        *_missing(case, kind),
        *(
            TopologyTrap(
                column,
                wrong,
                "; ".join(filter(None, (in_unit, _sheet(column, kind)))) or "the machine's own",
            )
            for column, (wrong, in_unit) in refused.items()
            if row.cells.get(column)
        ),
        *_world(case),
        *_network(case),
        *_host_memory(case, kind),
    ]
    if kind:
        for check in (_counts, _both_ways, _part_of_a_mesh, _memory, _host_link):
            traps += check(case, kind)
    if row.library:
        traps += row.library.traps(row, values, gpus)
    traps.sort(key=lambda trap: list(COLUMNS).index(trap.column))
    return [replace(trap, column=row.called(trap.column)) for trap in traps]


def _sheet(column: str, kind: GpuKind | None) -> str:
    """Return what the data sheet of a GPU says, as it would be stored; empty if unknown."""
    if kind is None:
        return ""
    value = {
        "hbm_bytes": kind.memory_bytes,
        "hbm_bw": kind.hbm_bw,
        "intra_host_bw": kind.all_links_bw or kind.host_link_bw,
        "hbm_to_ddr_bw": kind.host_link_bw / 2,
    }.get(column)
    return f"{value:.0f} ({kind.name})" if value else ""


def _missing(case: _Case, kind: GpuKind | None) -> Iterator[TopologyTrap]:
    library = case.row.library
    for column in REQUIRED:
        if case.row.cells.get(column):
            continue
        called = case.row.called(column)
        write = _sheet(column, kind) or "the machine's own"
        if library is None:
            yield TopologyTrap(column, f"{called} is missing", write)
        elif column in library.defaults:
            plans = f"{library.library} plans with {library.defaults[column]}"
            wrong = f"{called} is left out, so {plans}, whatever the machine is"
            yield TopologyTrap(column, wrong, write)


def _world(case: _Case) -> Iterator[TopologyTrap]:
    gpus, topology, argument = case.gpus, case.topology, case.row.called("gpus_per_host")
    if gpus is None or "gpus_per_host" not in case.values:
        return
    hosts, domain = topology.hosts_per_nvlink_domain, topology.domain_size
    column = "gpus_per_host" if hosts == 1 else "hosts_per_nvlink_domain"
    if gpus > MOST_GPUS:
        yield TopologyTrap(column, f"{gpus:,} GPUs are more than any cluster has", "fewer")
    elif domain > gpus and hosts > 1:
        if case.row.library is None:
            wrong = f"a domain of {domain} GPUs is larger than the world of {gpus}"
            fits = f"{-(-gpus // topology.gpus_per_host)}, the hosts that the job has in the domain"
            yield TopologyTrap(column, wrong, fits)
    elif domain > gpus:
        if case.row.library:
            wrong = f"{argument}={domain} is larger than the world of {gpus}"
            yield TopologyTrap(column, wrong, f"{argument}={gpus}")
    elif gpus % domain:
        wrong = f"{gpus} GPUs are no whole number of domains of {domain}"
        near = f"{gpus // domain * domain} or {-(-gpus // domain) * domain} GPUs"
        yield TopologyTrap(column, wrong, near)
    if gpus > domain and not case.row.cells.get("inter_host_bw"):
        plans = [
            f"{each.library} plans with {each.defaults['inter_host_bw']}"
            for each in case.libraries
            if "inter_host_bw" in each.defaults
        ]
        wrong = f"{gpus} GPUs make more than one domain of {domain}, but inter_host_bw is not given"
        share = "a GPU's share of the network, 12500000 for 100 Gbit/s"
        wrong += f", so {' and '.join(plans)}" if plans else ""
        yield TopologyTrap("inter_host_bw", wrong, share)


def _network(case: _Case) -> Iterator[TopologyTrap]:
    inter, intra = (case.values.get(column) for column in ("inter_host_bw", "intra_host_bw"))
    if inter and inter > _MOST_INTER:
        wrong = (
            f"{inter / GB:.4g} GB/s for each GPU is more than any network device carries; it looks "
            "like Gbit/s, or like a whole host's"
        )
        choices = f"{inter / 8:.0f} if Gbit/s were meant"
        if case.topology.gpus_per_host > 1:
            choices += f", {inter / case.topology.gpus_per_host:.0f} if it is the host's"
        yield TopologyTrap("inter_host_bw", wrong, choices)
    if inter and intra and inter > intra:
        wrong = f"{inter / GB:.4g} GB/s between hosts is more than {intra / GB:.4g} inside one"
        yield TopologyTrap("inter_host_bw", wrong, "a GPU's share of the host's network devices")


def _host_memory(case: _Case, kind: GpuKind | None) -> Iterator[TopologyTrap]:
    per_gpu, count = (case.values.get(column) for column in ("ddr_bytes", "gpus_per_host"))
    if not per_gpu or not count:
        return
    count = min(count, (kind and kind.most_per_host) or count)
    if per_gpu * count > _MOST_HOST_MEMORY:
        wrong = (
            f"{per_gpu / 2**30:,.0f} GiB for each of {count} GPUs makes "
            f"{per_gpu * count / 2**40:,.1f} TiB in a host: it is the host's memory, not a GPU's"
        )
        yield TopologyTrap("ddr_bytes", wrong, f"{per_gpu // count}, the host's over its GPUs")


def _counts(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """More GPUs than a host or an NVLink domain has, or a domain that is cut up."""
    count, most = case.values.get("gpus_per_host"), kind.most_per_host
    hosts = case.topology.hosts_per_nvlink_domain
    if not count or not most:
        return
    if count > most and case.row.library is None:
        write = f"{most}"
        if kind.domain and count * hosts % most == 0:
            write += f", and hosts_per_nvlink_domain={count * hosts // most}"
        wrong = f"a host has at most {most} {kind.name}, not {count}"
        yield TopologyTrap("gpus_per_host", wrong, write)
    elif kind.domain and count < kind.domain and hosts == 1:
        left = kind.domain // count
        wrong = (
            f"the {count} {kind.name} of a host are a part of an NVLink domain of up to "
            f"{kind.domain}; so written, all beyond the host is planned at inter_host_bw"
        )
        if case.row.library:
            write = f"{case.row.called('gpus_per_host')}={count * left}"
            yield TopologyTrap("gpus_per_host", wrong, write)
        else:
            yield TopologyTrap("hosts_per_nvlink_domain", wrong, f"{left}, for a whole rack")
    elif kind.domain and count * hosts > kind.domain:
        wrong = f"{count} x {hosts} GPUs are more than the {kind.domain} of an NVLink domain"
        yield TopologyTrap("hosts_per_nvlink_domain", wrong, f"{max(1, kind.domain // count)}")


def _both_ways(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """An intra-host bandwidth above what the GPU's links carry one way."""
    one_way = kind.all_links_bw or kind.host_link_bw
    for column in ("intra_host_bw", "intra_host_bw_nccl"):
        value = case.values.get(column, 0)
        over = value / one_way
        if over <= 1.03:
            continue
        if abs(over - 2) < 0.06 or abs(over - 2 * _GIB_FOR_GB) < 0.06:
            why = "both ways together"
        elif abs(over - _GIB_FOR_GB) < 0.02:
            why = "the data sheet's figure taken for GiB/s"
        else:
            why = "more than the GPU has links for"
        wrong = f"{value / GB:.4g} GB/s is {why}: {kind.name} sends {one_way / GB:.4g} GB/s one way"
        yield TopologyTrap(column, wrong, f"{one_way:.0f}")


def _part_of_a_mesh(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """A part of a machine whose GPUs each have their own links to each other, without a switch."""
    count, gpus = case.topology.gpus_per_host, case.gpus
    if kind.name != "MI300X" or not kind.all_links_bw or not gpus or not 2 <= gpus < count:
        return
    used = kind.all_links_bw / kind.nvlinks * (gpus - 1)
    if case.values.get("intra_host_bw", 0) > 1.03 * used:
        wrong = (
            f"{gpus} of {count} {kind.name} use {gpus - 1} of each GPU's {kind.nvlinks} links, "
            f"so they exchange {used / GB:.4g} GB/s"
        )
        yield TopologyTrap("intra_host_bw", wrong, f"{used:.0f}")


def _memory(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    """A bandwidth or a size of memory that is not the GPU's."""
    if bandwidth := case.values.get("hbm_bw"):
        ratio = bandwidth / kind.hbm_bw
        why = f"{bandwidth / GB:,.0f} GB/s is {'above' if ratio > 1 else 'below'} what the GPU has"
        if abs(ratio - _GIB_FOR_GB) < 0.01:
            why = "GB/s taken for GiB/s"
        elif 0.9 <= ratio <= 1.1:
            why = ""
        if why:
            wrong = f"{why}: the data sheet of {kind.name} says {kind.hbm_bw / GB:,.0f} GB/s"
            yield TopologyTrap("hbm_bw", wrong, f"{kind.hbm_bw:.0f}")
    size = case.values.get("hbm_bytes")
    if size and kind.memory_bytes and not 0.95 <= (ratio := size / kind.memory_bytes) <= 1.008:
        side = "more than" if ratio > 1 else f"{1 - ratio:.0%} less than"
        wrong = f"{size} bytes are {side} a program sees of {kind.name}"
        yield TopologyTrap("hbm_bytes", wrong, f"{kind.memory_bytes} ({kind.memory_basis})")


def _host_link(case: _Case, kind: GpuKind) -> Iterator[TopologyTrap]:
    value, link = case.values.get("hbm_to_ddr_bw", 0), kind.host_link_bw
    if value > 0.55 * link:
        why = "both ways together" if value > 1.5 * link else "the whole link"
        whole = f"{link / GB:.4g} GB/s one way join {kind.name} with its host"
        wrong = f"{value / GB:.4g} GB/s is {why}: {whole}, and the network shares them"
        sources = [
            f" ({each.sources['hbm_to_ddr_bw']})"
            for each in case.libraries
            if "hbm_to_ddr_bw" in each.sources
        ]
        yield TopologyTrap("hbm_to_ddr_bw", wrong, f"{link / 2:.0f}, half of it{''.join(sources)}")

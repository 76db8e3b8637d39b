"""Find all traps of a topology: figures that mislead a planner, each with a correction."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from harness.contract.abilities import TopologyRow, TopologyTrap
from harness.topologies.links import usual_links
from harness.topologies.lookup import COLUMNS, GB, GpuKind, find_gpu_kind, read_values

_GIB_FOR_GB = 2**30 / 1e9
_MOST_HOST_MEMORY = 2**42
# 800 Gbit/s, the most that a network device carries; no GPU of the presets has two devices.
_MOST_INTER = 100 * GB

Traps = Iterator[TopologyTrap]
Values = Mapping[str, Any]


class _SheetFigure(NamedTuple):
    """A figure of a data sheet, its meaning, and the ratios to it that are no trap."""

    value: float
    what: str
    least: float
    most: float


def find_traps(row: TopologyRow, gpus: int | None = None) -> list[TopologyTrap]:
    """Return all traps of a topology in the order of columns; an empty list if there are none.

    `gpus` is the number of GPUs to use, by default the row's.
    """
    gpus = row.gpus if gpus is None else gpus
    kind = find_gpu_kind(row.texts.get("gpu", ""))
    sheet = _sheet(kind) if kind else {}
    values, refused = read_values(row.texts)
    traps = [*_refusals(row, refused, sheet), *_memory_and_network(values, kind)]
    if values.get("gpus_per_host"):
        traps += [*_job(row, values, gpus or 0), *_domain(row, values, kind)]
    if kind:
        traps += [*_data_sheet(values, kind, sheet), *_part_of_a_host(values, kind, gpus or 0)]
    if row.library:
        traps += row.library.traps(row, values, gpus)
    traps.sort(key=lambda trap: list(COLUMNS).index(trap.column))
    # A user of a library knows a column by the library's argument.
    called = row.library.arguments if row.library else {}
    return [replace(trap, column=called.get(trap.column, trap.column)) for trap in traps]


def _sheet(kind: GpuKind) -> dict[str, _SheetFigure]:
    """Return the figures of a data sheet, by column."""
    links_bw, half = kind.all_links_bw or kind.host_link_bw, kind.host_link_bw / 2
    sheet = {
        "hbm_bw": _SheetFigure(kind.hbm_bw, "of memory bandwidth", 0.9, 1.06),
        "intra_host_bw": _SheetFigure(links_bw, "one way by all links", 0, 1.03),
        "hbm_to_ddr_bw": _SheetFigure(half, "one way by half of the link to the host", 0, 1.1),
    }
    if kind.memory_bytes:
        what = f"as a program sees it, {kind.memory_basis}"
        sheet["hbm_bytes"] = _SheetFigure(kind.memory_bytes, what, 0.95, 1.008)
    return sheet


def _refusals(
    row: TopologyRow, refused: Mapping[str, tuple[str, str]], sheet: Mapping[str, _SheetFigure]
) -> Traps:
    """Find invalid fields, and missing fields for which a library uses a misleading default."""
    for column, (wrong, write) in refused.items():
        if row.library and not row.texts.get(column):
            if column not in row.library.defaults:
                continue
            plans = f"{row.library.library} plans with {row.library.defaults[column]}"
            wrong = f"is left out, so {plans}, whatever the machine is"
        figure = f"{sheet[column].value:.0f}, by the data sheet" if column in sheet else ""
        yield TopologyTrap(column, wrong, write or figure or "the machine's own")


def _memory_and_network(values: Values, kind: GpuKind | None) -> Traps:
    """Find what belongs to a whole host, a network's speed in Gbit/s or above that in a host."""
    share, local = values.get("ddr_bytes", 0), values.get("gpus_per_host", 1)
    count = min(local, (kind and kind.most_per_host) or local)
    if share * count > _MOST_HOST_MEMORY:
        wrong = (
            f"{share / 2**30:,.0f} GiB for each of {count} GPUs makes {share * count / 2**40:,.1f} "
            "TiB in a host: it is the host's memory, not a GPU's"
        )
        yield TopologyTrap("ddr_bytes", wrong, f"{share // count}, the host's over its GPUs")
    inter, intra = values.get("inter_host_bw", 0), values.get("intra_host_bw", 4000 * GB)
    if inter > _MOST_INTER:
        wrong = (
            f"{inter / GB:.4g} GB/s for each GPU is more than any network device carries; it looks "
            "like Gbit/s, or like a whole host's"
        )
        write = f"{inter / 8:.0f} if Gbit/s were meant, {inter / local:.0f} if it is the host's"
        yield TopologyTrap("inter_host_bw", wrong, write)
    elif inter > intra:
        wrong = f"{inter / GB:.4g} GB/s between hosts is more than {intra / GB:.4g} inside a host"
        write = "a GPU's share of the host's network devices"
        yield TopologyTrap("inter_host_bw", wrong, write)


def _job(row: TopologyRow, values: Values, gpus: int) -> Traps:
    """Find a number of GPUs that does not fit the topology, or needs a missing `inter_host_bw`."""
    local, hosts = values["gpus_per_host"], values.get("hosts_per_nvlink_domain", 1)
    domain = local * hosts
    column = "gpus_per_host" if hosts == 1 else "hosts_per_nvlink_domain"
    if domain > gpus > 0 and hosts > 1 and not row.library:
        wrong = f"a domain of {domain} GPUs is larger than the world of {gpus}"
        yield TopologyTrap(column, wrong, f"{-(-gpus // local)}, the hosts of the job")
    elif gpus > domain and gpus % domain:
        wrong = f"{gpus} GPUs are no whole number of domains of {domain}"
        near = f"{gpus // domain * domain} or {-(-gpus // domain) * domain} GPUs"
        yield TopologyTrap(column, wrong, near)
    if gpus > domain and not row.texts.get("inter_host_bw"):
        defaults = row.library.defaults if row.library else {}
        default = defaults.get("inter_host_bw", "its own default")
        wrong = (
            f"{gpus} GPUs make more than one domain of {domain}, but inter_host_bw is not given, "
            f"so the planner uses {default}"
        )
        write = "a GPU's share of the network, 12500000 for 100 Gbit/s"
        yield TopologyTrap("inter_host_bw", wrong, write)


def _domain(row: TopologyRow, values: Values, kind: GpuKind | None) -> Traps:
    """Find more GPUs than a host or NVLink domain has, or a domain declared as single hosts."""
    local, hosts = values["gpus_per_host"], values.get("hosts_per_nvlink_domain", 1)
    most, rack = (kind.most_per_host, kind.domain) if kind else (None, None)
    name = kind.name if kind else ""
    column = "gpus_per_host" if row.library else "hosts_per_nvlink_domain"
    if most and local > most and not row.library:
        is_rack = rack and local * hosts % most == 0
        also = f", and {column}={local * hosts // most}" if is_rack else ""
        wrong = f"a host has at most {most} {name}, not {local}"
        yield TopologyTrap("gpus_per_host", wrong, f"{most}{also}")
    elif rack and local < rack and hosts == 1:
        wrong = (
            f"the {local} {name} of a host are a part of an NVLink domain of up to {rack}; so "
            "written, all beyond the host is planned at inter_host_bw"
        )
        whole = rack if row.library else rack // local
        yield TopologyTrap(column, wrong, f"{whole}, for a whole rack")
    elif rack and local * hosts > rack:
        wrong = f"{local} x {hosts} GPUs are more than the {rack} of an NVLink domain"
        yield TopologyTrap(column, wrong, f"{max(1, rack // local)}")


def _data_sheet(values: Values, kind: GpuKind, sheet: Mapping[str, _SheetFigure]) -> Traps:
    """Find figures that differ from the GPU's data sheet."""
    for column, (figure, what, least, most) in sheet.items():
        value = values.get(column, figure)
        ratio = value / figure
        if least <= ratio <= most:
            continue
        unit, size = ("GB/s", GB) if "_bw" in column else ("GiB", 2**30)
        hint = "; GiB were perhaps taken for GB" if abs(ratio - _GIB_FOR_GB) < 0.01 else ""
        wrong = (
            f"{value / size:,.4g} {unit} is {ratio:.3g} times what the data sheet of {kind.name} "
            f"has, {figure / size:,.4g} {unit} {what}{hint}"
        )
        yield TopologyTrap(column, wrong, f"{figure:.0f}")


def _part_of_a_host(values: Values, kind: GpuKind, gpus: int) -> Traps:
    """Find a job on part of a host without a switch, which uses only the links in that part."""
    intra, local = values.get("intra_host_bw", 0), values.get("gpus_per_host", 1)
    by = usual_links(kind, local, values.get("hosts_per_nvlink_domain", 1), intra)
    if by == "pairs" and 2 <= gpus < local:
        used = (kind.all_links_bw or 0) * (gpus - 1) / (local - 1)
        if intra > 1.03 * used:
            wrong = (
                f"{gpus} of {local} {kind.name} use {gpus - 1} of each GPU's {local - 1} peers' "
                f"links, so they exchange {used / GB:.4g} GB/s"
            )
            yield TopologyTrap("intra_host_bw", wrong, f"{used:.0f}")

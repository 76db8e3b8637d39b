"""What `shardbench list` shows: families, variants, workloads, topologies."""

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.registry import Registry
from harness.topologies.lookup import presets
from reports.tables.terminal import new_table


def families(registry: Registry) -> RenderableType:
    """List the families."""
    table = new_table(
        "Families", "family", "reference", "variants", "what it plans", right=["variants"]
    )
    for family in registry.families:
        table.add_row(
            family.name, family.reference.name, str(len(family.variants)), Text(family.summary)
        )
    return Group(table, "")


def variants(registry: Registry) -> RenderableType:
    """List the variants of every family."""
    table = new_table("Variants", "variant", "decides", "what it is", "source")
    for family in registry.families:
        for variant in family.variants.values():
            decides = "reference" if variant.is_reference else variant.same_as and "the same"
            missing = variant.missing()
            summary = variant.summary + (
                f" (not installed: {', '.join(missing)})" if missing else ""
            )
            table.add_row(
                f"{family.name}/{variant.name}", decides or "its own", Text(summary), variant.source
            )
    return Group(table, "")


def workloads(registry: Registry, sources: bool) -> RenderableType:
    """List the workloads of every family, and on request where their figures are from."""
    tables: list[RenderableType] = []
    for family in registry.families:
        title = f"Workloads of {family.name}"
        table = new_table(title, "workload", "what it is", *["source"] * sources)
        for workload in family.workloads():
            cells = (workload.name, workload.summary, workload.source)
            table.add_row(*(Text(cell) for cell in cells[: len(table.columns)]))
        tables += [table, ""]
    return Group(*tables)


def topologies(sources: bool) -> RenderableType:
    """List the presets, in units for people, and on request where the figures are from."""
    if sources:
        table = new_table("Topologies", "topology", "GPU", "capacity", "source")
        for topology in presets().values():
            table.add_row(topology.name, topology.gpu, topology.hbm_basis, Text(topology.source))
        return Group(table, "")
    numbers = ["GPUs/host", "HBM GiB", "DDR GiB", "intra", "inter", "HBM", "H2D"]
    table = new_table(
        "Topologies (GiB a GPU; GB/s one way: intra-host, inter-host, HBM, host to GPU)",
        "topology",
        *numbers,
        "confidence",
        right=numbers,
    )
    for topology in presets().values():
        hosts = topology.hosts_per_nvlink_domain
        table.add_row(
            topology.name,
            f"{topology.gpus_per_host}" + (f" x{hosts}" if hosts > 1 else ""),
            _or_default(topology.hbm_bytes, 2**30),
            _or_default(topology.ddr_bytes, 2**30),
            _or_default(topology.intra_host_bw, 1e6),
            _or_default(topology.inter_host_bw, 1e6),
            _or_default(topology.hbm_bw, 1e6),
            _or_default(topology.hbm_to_ddr_bw, 1e6),
            topology.confidence,
        )
    note = Text("-: no sourced figure, the planner's own default applies.", style="dim")
    return Group(table, note, "")


def _or_default(value: float | None, unit: float) -> str:
    return (
        "-"
        if value is None
        else f"{value / unit:,.0f}"
        if value >= unit * 10
        else f"{value / unit:.1f}"
    )

"""The lists of `shardbench list`: families, variants, workloads, topologies."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from harness.contract.registry import Registry
from harness.contract.variants import Variant
from harness.model.topology import Topology
from harness.topologies.lookup import presets
from reports.tables.table import TableColumn, code, numbers, table_of, text
from reports.tables.terminal import as_terminal


def families(registry: Registry) -> Iterator[RenderableType]:
    """List the families."""
    table = table_of(
        registry.families,
        code("family", attrgetter("name")),
        code("reference", attrgetter("reference.name")),
        numbers("variants", lambda family: len(family.variants)),
        text("what it plans", attrgetter("summary")),
    )
    yield from (as_terminal(table, "Families"), "")


def variants(registry: Registry) -> Iterator[RenderableType]:
    """List the variants of every family."""
    table = table_of(
        (
            (f"{family.name}/{variant.name}", variant)
            for family in registry.families
            for variant in family.variants.values()
        ),
        code("variant", 0),
        text("decides", lambda row: _decides(row[1])),
        text("what it is", lambda row: _summary(row[1])),
        text("source", lambda row: row[1].source),
    )
    yield from (as_terminal(table, "Variants"), "")


def _decides(variant: Variant[Any, Any]) -> str:
    if variant.is_reference:
        return "reference"
    return "the same" if variant.same_as else "its own"


def _summary(variant: Variant[Any, Any]) -> str:
    missing = ", ".join(variant.missing())
    return variant.summary + (f" (not installed: {missing})" if missing else "")


def workloads(registry: Registry, sources: bool) -> Iterator[RenderableType]:
    """List the workloads of every family, and on request where their figures are from."""
    columns = [code("workload", attrgetter("name")), text("what it is", attrgetter("summary"))]
    columns += [text("source", attrgetter("source"))] * sources
    for family in registry.families:
        table = table_of(family.workloads(), *columns)
        yield from (as_terminal(table, f"Workloads of {family.name}"), "")


def topologies(sources: bool) -> Iterator[RenderableType]:
    """List the presets, in units for people, and on request where the figures are from."""
    found = presets().values()
    name = code("topology", attrgetter("name"))
    if sources:
        about = (("GPU", "gpu"), ("capacity", "hbm_basis"), ("source", "source"))
        columns = (text(title, attrgetter(field)) for title, field in about)
        yield from (as_terminal(table_of(found, name, *columns), "Topologies"), "")
        return

    def amount(title: str, field: str, unit: float) -> TableColumn:
        return numbers(title, lambda row: _in_unit(getattr(row, field), unit))

    table = table_of(
        found,
        name,
        numbers("GPUs/host", _gpus),
        amount("HBM GiB", "hbm_bytes", 2**30),
        amount("DDR GiB", "ddr_bytes", 2**30),
        amount("intra", "intra_host_bw", 1e6),
        amount("inter", "inter_host_bw", 1e6),
        amount("HBM", "hbm_bw", 1e6),
        amount("H2D", "hbm_to_ddr_bw", 1e6),
        text("confidence", attrgetter("confidence")),
    )
    title = "Topologies (GiB a GPU; GB/s one way: intra-host, inter-host, HBM, host to GPU)"
    yield as_terminal(table, title)
    yield Text("-: no sourced figure, the planner's own default applies.", style="dim")
    yield ""


def _gpus(row: Topology) -> str:
    hosts = row.hosts_per_nvlink_domain
    return f"{row.gpus_per_host}" + (f" x{hosts}" if hosts > 1 else "")


def _in_unit(value: float | None, unit: float) -> str | None:
    return None if value is None else f"{value / unit:,.{0 if value >= 10 * unit else 1}f}"

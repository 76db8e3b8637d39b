"""`shardbench list`: list families, variants, workloads and topologies."""

from collections.abc import Iterable
from typing import Any

import click
from rich.console import Group, RenderableType

from harness.contract import Family
from harness.contract.variants import Variant
from harness.model.errors import UsageError
from harness.model.topology import Topology
from harness.topologies.lookup import presets
from reports.core.table import Table, TableColumn, code, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench import completion, display, options
from shardbench.command import command

_LONGEST_NAME = 36  # names up to this length are not wrapped, so that users can copy them
_KINDS = ("all", "families", "variants", "workloads", "topologies")


@command("shardbench list topologies")
@click.argument("what", default="all", type=click.Choice(_KINDS), metavar="[WHAT]")
@click.argument(
    "family", default="", help="Only of this family.", shell_complete=completion.families
)
@click.option("--sources", is_flag=True, help="Say where each of them is from.")
def list_command(what: str, family: str, sources: bool) -> None:
    """List families, variants, workloads, topologies."""
    tables: dict[str, Table] = {}
    notes: list[RenderableType] = []
    if what != "topologies":
        registry = options.found_registry()
        families = (registry.find(family),) if family else registry.families
        if what in ("all", "families"):
            tables["Families"] = _families(families)
        if what in ("all", "variants"):
            tables["Variants"] = _variants(families, sources)
        if what in ("all", "workloads"):
            columns = [code("workload", "name", _LONGEST_NAME), text("description", "summary")]
            columns += [text("source")] * sources
            for listed in families:
                tables[f"Workloads of {listed.name}"] = table_of(listed.workloads(), *columns)
    elif family:
        raise UsageError(f"Topologies belong to no family: leave out '{family}'.")
    if what in ("all", "topologies"):
        tables["Topologies"] = _topologies(sources)
        if not sources:
            notes.append("GiB, and GB/s one way, of each GPU. H2D: host to GPU; -: the planner's")
            notes.append("own default, since no source has a figure.")
    parts = [part for title, table in tables.items() for part in ("", as_terminal(table, title))]
    display.show(Group(*parts[1:], *notes))


def _families(families: Iterable[Family[Any, Any]]) -> Table:
    return table_of(
        families,
        code("family", "name"),
        code("reference", lambda family: family.reference.name),
        numbers("variants", lambda family: len(family.variants)),
        text("plans", "summary"),
    )


def _variants(families: Iterable[Family[Any, Any]], sources: bool) -> Table:
    def decides(variant: Variant[Any, Any]) -> str:
        if variant.reference:
            return "reference"
        return "the same" if variant.same_as else "its own"

    def description(variant: Variant[Any, Any]) -> str:
        missing = ", ".join(variant.missing())
        return variant.summary + (f" (not installed: {missing})" if missing else "")

    rows = [
        (f"{family.name}/{variant.name}", variant.source, decides(variant), description(variant))
        for family in families
        for variant in family.variants.values()
    ]
    name = code("variant", 0, _LONGEST_NAME)
    if sources:
        return table_of(rows, name, text("source", 1))
    return table_of(rows, name, text("decides", 2), text("description", 3))


def _topologies(sources: bool) -> Table:
    """Return a table of the presets, with their figures or their sources."""

    def basis(row: Topology) -> str:
        return (
            f"{row.gpu}; capacity: {row.hbm_basis}; confidence: {row.confidence}; "
            f"{row.source.rstrip('.')}."
        )

    def gpus(row: Topology) -> str:
        hosts = row.hosts_per_nvlink_domain
        return f"{row.gpus_per_host}" + (f" x{hosts}" if hosts > 1 else "")

    def scaled(title: str, field: str, unit: float) -> TableColumn:
        def value(row: Topology) -> float | None:
            stored: float | None = getattr(row, field)
            return None if stored is None else stored / unit

        return numbers(title, value, lambda value: f"{value:,.{0 if value >= 10 else 1}f}")

    name = code("topology", "name", _LONGEST_NAME)
    if sources:
        return table_of(presets().values(), name, text("GPU, capacity and sources", basis))
    return table_of(
        presets().values(),
        name,
        numbers("GPUs/\nhost", gpus),
        scaled("HBM\nGiB", "hbm_bytes", 2**30),
        scaled("DDR\nGiB", "ddr_bytes", 2**30),
        scaled("intra", "intra_host_bw", 1e6),
        scaled("inter", "inter_host_bw", 1e6),
        scaled("HBM", "hbm_bw", 1e6),
        scaled("H2D", "hbm_to_ddr_bw", 1e6),
    )

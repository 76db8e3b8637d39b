"""`shardbench list`: list families, variants, workloads and topologies."""

from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType

from harness.contract import Family
from harness.contract.variants import Variant
from harness.model.errors import UsageError
from harness.model.topology import Topology
from harness.topologies.lookup import presets
from reports.core.table import Table, code, numbers, table_of, text
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
    if what == "topologies" and family:
        raise UsageError(f"Topologies belong to no family: leave out '{family}'.")
    parts: list[RenderableType] = []
    if what != "topologies":
        registry = options.found_registry()
        families = (registry.find(family),) if family else registry.families
        if what in ("all", "families"):
            parts += [as_terminal(_families(families), "Families"), ""]
        if what in ("all", "variants"):
            parts += [as_terminal(_variants(families, sources), "Variants"), ""]
        if what in ("all", "workloads"):
            columns = [code("workload", "name", _LONGEST_NAME), text("description", "summary")]
            columns += [text("source")] * sources
            for listed in families:
                table = table_of(listed.workloads(), *columns)
                parts += [as_terminal(table, f"Workloads of {listed.name}"), ""]
    if what in ("all", "topologies"):
        parts.append(as_terminal(_topologies(sources), "Topologies"))
        if not sources:
            parts.append("GiB, and GB/s one way, of each GPU. H2D: host to GPU; -: the planner's")
            parts.append("own default, since no source has a figure.")
    display.show(Group(*parts))


def _families(families: Sequence[Family[Any, Any]]) -> Table:
    return table_of(
        families,
        code("family", "name"),
        code("reference", lambda family: family.reference.name),
        numbers("variants", lambda family: len(family.variants)),
        text("plans", "summary"),
    )


def _variants(families: Sequence[Family[Any, Any]], sources: bool) -> Table:
    def decides(row: tuple[str, Variant[Any, Any]]) -> str:
        if row[1].reference:
            return "reference"
        return "the same" if row[1].same_as else "its own"

    def description(row: tuple[str, Variant[Any, Any]]) -> str:
        missing = ", ".join(row[1].missing())
        return row[1].summary + (f" (not installed: {missing})" if missing else "")

    rows = [(family.name, variant) for family in families for variant in family.variants.values()]
    name = code("variant", lambda row: f"{row[0]}/{row[1].name}", _LONGEST_NAME)
    if sources:
        return table_of(rows, name, text("source", lambda row: row[1].source))
    return table_of(rows, name, text("decides", decides), text("description", description))


def _topologies(sources: bool) -> Table:
    """Return a table of the presets, with their figures or their sources."""
    name = code("topology", "name", _LONGEST_NAME)
    if sources:
        return table_of(presets().values(), name, text("GPU, capacity and sources", _basis))
    return table_of(
        presets().values(),
        name,
        numbers("GPUs/\nhost", _gpus),
        numbers("HBM\nGiB", _scaled("hbm_bytes", 2**30), _short),
        numbers("DDR\nGiB", _scaled("ddr_bytes", 2**30), _short),
        numbers("intra", _scaled("intra_host_bw", 1e6), _short),
        numbers("inter", _scaled("inter_host_bw", 1e6), _short),
        numbers("HBM", _scaled("hbm_bw", 1e6), _short),
        numbers("H2D", _scaled("hbm_to_ddr_bw", 1e6), _short),
    )


def _basis(row: Topology) -> str:
    return (
        f"{row.gpu}; capacity: {row.hbm_basis}; confidence: {row.confidence}; "
        f"{row.source.rstrip('.')}."
    )


def _gpus(row: Topology) -> str:
    hosts = row.hosts_per_nvlink_domain
    return f"{row.gpus_per_host}" + (f" x{hosts}" if hosts > 1 else "")


def _short(value: float) -> str:
    return f"{value:,.{0 if value >= 10 else 1}f}"


def _scaled(field: str, unit: float) -> Callable[[Topology], float | None]:
    def value(row: Topology) -> float | None:
        stored: float | None = getattr(row, field)
        return None if stored is None else stored / unit

    return value

"""`shardbench list`: list families, variants, workloads and topologies."""

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Group, RenderableType

from harness.contract import Family
from harness.contract.registry import Registry
from harness.contract.variants import Variant
from harness.model.errors import UsageError, unknown
from harness.model.topology import Topology
from harness.topologies.lookup import presets
from reports.core.table import Table, TableColumn, code, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench import completion, display
from shardbench.command import command
from shardbench.completion import KINDS
from shardbench.options import found_registry

_LONGEST_NAME = 36  # names up to this length are not wrapped, so that users can copy them


@command("shardbench list topologies")
@click.argument("what", default="all", help=", ".join(KINDS), shell_complete=completion.kinds)
@click.argument(
    "family", default="", help="Only of this family.", shell_complete=completion.families
)
@click.option("--sources", is_flag=True, help="Say where each of them is from.")
def list_command(what: str, family: str, sources: bool) -> None:
    """List families, variants, workloads, topologies."""
    if what not in ("all", *KINDS):
        raise unknown("thing to list", what, KINDS)
    if what == "topologies" and family:
        raise UsageError(f"Topologies belong to no family: leave out '{family}'.")
    registry = Registry() if what == "topologies" else found_registry()
    families = (registry.find(family),) if family else registry.families
    parts: list[RenderableType] = []
    if what in ("all", "families"):
        parts += [as_terminal(_families(families), "Families"), ""]
    if what in ("all", "variants"):
        parts += [as_terminal(_variants(families, sources), "Variants"), ""]
    if what in ("all", "workloads"):
        columns = [code("workload", "name", _LONGEST_NAME), text("description", "summary")]
        columns += [text("source")] * sources
        for each in families:
            table = table_of(each.workloads(), *columns)
            parts += [as_terminal(table, f"Workloads of {each.name}"), ""]
    if what in ("all", "topologies"):
        title = "Topologies (GiB and GB/s one way of each GPU; H2D: host to GPU)"
        parts.append(as_terminal(_topologies(sources), "Topologies" if sources else title))
        if not sources:
            parts.append("-: no sourced figure, the planner's own default applies.")
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
    """Return a table of the built-in topologies, with figures, or with sources if `sources`."""

    def basis(row: Topology) -> str:
        return (
            f"{row.gpu}; capacity: {row.hbm_basis}; confidence: {row.confidence}; "
            f"{row.source.rstrip('.')}."
        )

    def gpus(row: Topology) -> str:
        hosts = row.hosts_per_nvlink_domain
        return f"{row.gpus_per_host}" + (f" x{hosts}" if hosts > 1 else "")

    def amount(title: str, field: str, unit: float) -> TableColumn:
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
        amount("HBM\nGiB", "hbm_bytes", 2**30),
        amount("DDR\nGiB", "ddr_bytes", 2**30),
        amount("intra", "intra_host_bw", 1e6),
        amount("inter", "inter_host_bw", 1e6),
        amount("HBM", "hbm_bw", 1e6),
        amount("H2D", "hbm_to_ddr_bw", 1e6),
    )

"""The tables of `shardbench list`: families, variants, workloads, topologies."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from harness.contract import Family
from harness.contract.variants import Variant
from harness.model.topology import Topology
from harness.topologies.lookup import presets
from reports.core.table import TableColumn, code, numbers, table_of, text
from reports.core.terminal import as_terminal

_LONGEST_NAME = 36  # names up to this length are not wrapped, so that users can copy them

_Families = Sequence[Family[Any, Any]]


def families(families: _Families) -> Iterator[RenderableType]:
    """Yield a table of the families."""
    table = table_of(
        families,
        code("family", "name"),
        code("reference", lambda family: family.reference.name),
        numbers("variants", lambda family: len(family.variants)),
        text("plans", "summary"),
    )
    yield from (as_terminal(table, "Families"), "")


def variants(families: _Families, sources: bool) -> Iterator[RenderableType]:
    """Yield a table of all variants, with descriptions, or with sources if `sources`."""

    def decides(row: tuple[str, Variant[Any, Any]]) -> str:
        if row[1].reference:
            return "reference"
        return "the same" if row[1].same_as else "its own"

    def description(row: tuple[str, Variant[Any, Any]]) -> str:
        missing = ", ".join(row[1].missing())
        return row[1].summary + (f" (not installed: {missing})" if missing else "")

    rows = [(family.name, variant) for family in families for variant in family.variants.values()]
    name = code("variant", lambda row: f"{row[0]}/{row[1].name}", _LONGEST_NAME)
    columns = [text("decides", decides), text("description", description)]
    if sources:
        columns = [text("source", lambda row: row[1].source)]
    yield from (as_terminal(table_of(rows, name, *columns), "Variants"), "")


def workloads(families: _Families, sources: bool) -> Iterator[RenderableType]:
    """Yield a table of workloads per family; with `sources`, it has their sources too."""
    columns = [code("workload", "name", _LONGEST_NAME), text("description", "summary")]
    columns += [text("source")] * sources
    for family in families:
        table = table_of(family.workloads(), *columns)
        yield from (as_terminal(table, f"Workloads of {family.name}"), "")


def topologies(sources: bool) -> Iterator[RenderableType]:
    """Yield a table of the built-in topologies, with figures, or with sources if `sources`."""

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

    columns = [
        numbers("GPUs/\nhost", gpus),
        amount("HBM\nGiB", "hbm_bytes", 2**30),
        amount("DDR\nGiB", "ddr_bytes", 2**30),
        amount("intra", "intra_host_bw", 1e6),
        amount("inter", "inter_host_bw", 1e6),
        amount("HBM", "hbm_bw", 1e6),
        amount("H2D", "hbm_to_ddr_bw", 1e6),
    ]
    title = "Topologies (GiB and GB/s one way of each GPU; H2D: host to GPU)"
    note = "-: no sourced figure, the planner's own default applies."
    if sources:
        columns, title, note = [text("GPU, capacity and sources", basis)], "Topologies", ""
    name = code("topology", "name", _LONGEST_NAME)
    yield as_terminal(table_of(presets().values(), name, *columns), title)
    yield Text(f"{note}\n" if note else "", style="dim")

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

_LONGEST_NAME = 36


def _name(title: str, value: str | int) -> TableColumn:
    """Return a column of names that are never wrapped, so that users can copy them."""
    return code(title, value, least=_LONGEST_NAME)


_Families = Sequence[Family[Any, Any]]


def families(found: _Families) -> Iterator[RenderableType]:
    """Yield a table of the families."""
    table = table_of(
        found,
        code("family", "name"),
        code("reference", lambda family: family.reference.name),
        numbers("variants", lambda family: len(family.variants)),
        text("plans", "summary"),
    )
    yield from (as_terminal(table, "Families"), "")


def variants(families: _Families, sources: bool) -> Iterator[RenderableType]:
    """Yield a table of all variants, with descriptions, or with sources if `sources`."""
    rows = (
        (f"{family.name}/{variant.name}", _decides(variant), _summary(variant), variant.source)
        for family in families
        for variant in family.variants.values()
    )
    columns = [text("decides", 1), text("description", 2)]
    if sources:
        columns = [text("source", 3)]
    yield from (as_terminal(table_of(rows, _name("variant", 0), *columns), "Variants"), "")


def _decides(variant: Variant[Any, Any]) -> str:
    if variant.is_reference:
        return "reference"
    return "the same" if variant.same_as else "its own"


def _summary(variant: Variant[Any, Any]) -> str:
    missing = ", ".join(variant.missing())
    return variant.summary + (f" (not installed: {missing})" if missing else "")


def workloads(families: _Families, sources: bool) -> Iterator[RenderableType]:
    """Yield a table of workloads per family; with `sources`, it has their sources too."""
    columns = [_name("workload", "name"), text("description", "summary")]
    columns += [text("source")] * sources
    for family in families:
        table = table_of(family.workloads(), *columns)
        yield from (as_terminal(table, f"Workloads of {family.name}"), "")


def topologies(sources: bool) -> Iterator[RenderableType]:
    """Yield a table of the built-in topologies, with figures, or with sources if `sources`."""
    found = presets().values()
    name = _name("topology", "name")
    if sources:
        table = table_of(found, name, text("GPU, what its capacity is from, and sources", _basis))
        yield from (as_terminal(table, "Topologies"), "")
        return

    def amount(title: str, field: str, unit: float) -> TableColumn:
        return numbers(title, lambda row: _in_unit(getattr(row, field), unit))

    table = table_of(
        found,
        name,
        numbers("GPUs/\nhost", _gpus),
        amount("HBM\nGiB", "hbm_bytes", 2**30),
        amount("DDR\nGiB", "ddr_bytes", 2**30),
        amount("intra", "intra_host_bw", 1e6),
        amount("inter", "inter_host_bw", 1e6),
        amount("HBM", "hbm_bw", 1e6),
        amount("H2D", "hbm_to_ddr_bw", 1e6),
    )
    title = "Topologies (GiB and GB/s one way of each GPU; H2D: host to GPU)"
    yield as_terminal(table, title)
    yield Text("-: no sourced figure, the planner's own default applies.", style="dim")
    yield ""


def _basis(row: Topology) -> str:
    return (
        f"{row.gpu}; capacity: {row.hbm_basis}; confidence: {row.confidence}; "
        f"{row.source.rstrip('.')}."
    )


def _gpus(row: Topology) -> str:
    hosts = row.hosts_per_nvlink_domain
    return f"{row.gpus_per_host}" + (f" x{hosts}" if hosts > 1 else "")


def _in_unit(value: float | None, unit: float) -> str | None:
    return None if value is None else f"{value / unit:,.{0 if value >= 10 * unit else 1}f}"

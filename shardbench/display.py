"""What the command line shows: lists and comparisons, as tables for people or one document."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.registry import Registry
from harness.results import Cell
from harness.topologies import presets

_ROW_FIELDS = (
    "variant",
    "cell",
    "status",
    "reason",
    "wall_s",
    "cpu_s",
    "ratio",
    "verdict",
    "verdict_reason",
    "decision",
    "same_as",
    "fingerprint",
    "quality",
    "counters",
    "phases",
    "progress",
    "projection_s",
    "claim",
    "source",
)
_PIPED_WIDTH = 160


def show(rendered: RenderableType) -> None:
    """Print to standard output, at the terminal's width or wide where it is piped."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    console.print(rendered)


def _table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for column in columns:
        is_number = column in right
        table.add_column(
            column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold"
        )
    return table


def families(registry: Registry) -> RenderableType:
    """List the families."""
    table = _table(
        "Families", "family", "reference", "variants", "what it plans", right=["variants"]
    )
    for family in registry.families:
        table.add_row(
            family.name, family.reference.name, str(len(family.variants)), Text(family.summary)
        )
    return Group(table, "")


def variants(registry: Registry) -> RenderableType:
    """List the variants of every family."""
    table = _table("Variants", "variant", "decides", "what it is", "source")
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
    table = _table("Workloads", "workload", "what it is", *["source"] * sources)
    for family in registry.families:
        for workload in family.workloads():
            cells = (workload.name, workload.summary, workload.source)
            table.add_row(*(Text(cell) for cell in cells[: len(table.columns)]))
    return Group(table, "")


def topologies(sources: bool) -> RenderableType:
    """List the presets, in units for people, and on request where the figures are from."""
    if sources:
        table = _table("Topologies", "topology", "GPU", "capacity", "source")
        for topology in presets().values():
            table.add_row(topology.name, topology.gpu, topology.hbm_basis, Text(topology.source))
        return Group(table, "")
    numbers = ["GPUs/host", "HBM GiB", "DDR GiB", "intra", "inter", "HBM", "H2D"]
    table = _table(
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


def document(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return a comparison as one JSON document."""
    first = cells[0]
    facts = next((cell.facts for cell in cells if cell.facts), {})
    records = [cell.record() for cell in cells]
    return {
        "schema": first.schema,
        "family": first.family,
        "problem": first.problem,
        "reference": first.reference,
        "facts": facts,
        "rows": [{field: record[field] for field in _ROW_FIELDS} for record in records],
        "qualities": first.qualities,
        "counters": first.counter_meanings,
        "settings": first.settings,
        "environment": first.environment,
    }


def comparison(cells: Sequence[Cell], details: bool) -> RenderableType:
    """Show a comparison: time and decision, what went wrong, and on request phases and counters."""
    first = cells[0]
    facts = next((cell.facts for cell in cells if cell.facts), {})
    quality = first.qualities[0]
    quality_title = quality["name"]
    numbers = ["CPU s", "ratio", "95 %", quality_title]
    table = _table("", "variant", *numbers[:3], "verdict", "decision", quality_title, right=numbers)
    for cell in cells:
        table.add_row(
            cell.variant,
            f"{cell.cpu_s['median']:.3g}" if cell.cpu_s else "-",
            f"{cell.ratio['value']:.3f}" if cell.ratio else "-",
            _interval(cell),
            _verdict(cell),
            cell.decision or "-",
            f"{cell.quality[quality_title]:.4g}" if cell.quality else "-",
        )
    parts: list[RenderableType] = [
        Text(f"{first.family} on {first.problem}", style="bold"),
        Text(", ".join(_fact(name, value) for name, value in facts.items() if value != "")),
        "",
        table,
        *_decisions(cells),
        *_notes(cells),
    ]
    if details:
        parts += [
            _by_variant("Counters", cells, "counters"),
            _by_variant("Phases, CPU seconds of the observed call", cells, "phases"),
        ]
    return Group(*parts)


def _fact(name: str, value: Any) -> str:
    return f"{name} {value:,}" if isinstance(value, int | float) else f"{name}: {value}"


def _interval(cell: Cell) -> str:
    if not cell.ratio:
        return "-"
    low, high = cell.ratio["low"], cell.ratio["high"]
    return f"{low:.3f}-{high:.3f}" if high < 1000 else "unbounded"


def _verdict(cell: Cell) -> Text:
    if cell.status != "ok":
        return Text(cell.status, style="yellow" if cell.status == "not installed" else "red")
    if cell.decision == "different":
        return Text("different decision", style="red")
    if cell.decision == "reference":
        return Text("reference", style="dim")
    styles = {"faster": "green", "slower": "red"}
    return Text(cell.verdict or "-", style=styles.get(cell.verdict or "", ""))


def _decisions(cells: Sequence[Cell]) -> list[RenderableType]:
    """Say which variants decided the same, by fingerprint."""
    alike: dict[str, list[str]] = {}
    for cell in cells:
        if cell.fingerprint:
            alike.setdefault(cell.fingerprint, []).append(cell.variant)
    table = _table("", "fingerprint", "of the decision of")
    for fingerprint, names in alike.items():
        table.add_row(fingerprint, ", ".join(names))
    return ["", table, ""] if alike else []


def _notes(cells: Sequence[Cell]) -> list[RenderableType]:
    notes: dict[str, list[str]] = {}
    for cell in cells:
        if note := _note(cell):
            notes.setdefault(note, []).append(cell.variant)
    return [Text(f"{', '.join(names)}: {note}.", style="dim") for note, names in notes.items()]


def _note(cell: Cell) -> str:
    if cell.status == "over budget":
        note = cell.reason or ""
        if cell.progress:
            total = cell.progress["total"]
            note += f" at {cell.progress['done']:,}"
            note += f" of {total:,}" if total else ""
            note += f" {cell.progress['unit']}"
        if cell.projection_s:
            note += f"; projection of the whole call: {cell.projection_s:,.0f} s"
        return note
    if cell.status != "ok":
        return (cell.reason or "").rstrip(".")
    if cell.decision == "different":
        return f"decides otherwise than {cell.same_as}, so it was not timed"
    return cell.verdict_reason if cell.verdict == "inconclusive" else ""


def _by_variant(title: str, cells: Sequence[Cell], field: str) -> RenderableType:
    shown = [cell for cell in cells if getattr(cell, field)]
    names = list(dict.fromkeys(name for cell in shown for name in getattr(cell, field)))
    table = _table(f"\n{title}", "variant", *names, right=names)
    for cell in shown:
        values = getattr(cell, field)
        table.add_row(cell.variant, *(_amount(values.get(name, 0)) for name in names))
    return table


def _amount(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"

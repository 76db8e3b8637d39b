"""`shardbench list`: list families, variants, workloads and topologies."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from harness.contract.registry import Registry
from harness.model.errors import UsageError, unknown
from shardbench import completion, display
from shardbench.display import listings
from shardbench.options import found_registry


def list_command(
    what: Annotated[
        str,
        typer.Argument(
            help="families, variants, workloads, topologies", autocompletion=completion.kinds
        ),
    ] = "all",
    family: Annotated[
        str, typer.Argument(help="Only of this family.", autocompletion=completion.families)
    ] = "",
    sources: Annotated[
        bool, typer.Option("--sources", help="Say where each of them is from.")
    ] = False,
) -> None:
    """List families, variants, workloads, topologies."""
    kinds: dict[str, Callable[[], Iterable[RenderableType]]] = {
        "families": lambda: listings.families(families),
        "variants": lambda: listings.variants(families, sources),
        "workloads": lambda: listings.workloads(families, sources),
        "topologies": lambda: listings.topologies(sources),
    }
    if what != "all" and what not in kinds:
        raise unknown("thing to list", what, kinds)
    if what == "topologies" and family:
        raise UsageError(f"Topologies belong to no family: leave out '{family}'.")
    registry = Registry() if what == "topologies" else found_registry()
    families = (registry.find(family),) if family else registry.families
    for name, listing in kinds.items():
        if what in ("all", name):
            display.show(Group(*listing()))

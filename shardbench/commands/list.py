"""`shardbench list`: list families, variants, workloads and topologies."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from harness.model.errors import unknown
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
    sources: Annotated[
        bool, typer.Option("--sources", help="Say where each of them is from.")
    ] = False,
) -> None:
    """List families, variants, workloads, topologies."""
    kinds: dict[str, Callable[[], Iterable[RenderableType]]] = {
        "families": lambda: listings.families(found_registry()),
        "variants": lambda: listings.variants(found_registry(), sources),
        "workloads": lambda: listings.workloads(found_registry(), sources),
        "topologies": lambda: listings.topologies(sources),
    }
    if what != "all" and what not in kinds:
        raise unknown("thing to list", what, kinds)
    for name, listing in kinds.items():
        if what in ("all", name):
            display.show(Group(*listing()))

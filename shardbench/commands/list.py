"""`shardbench list`: list families, variants, workloads and topologies."""

import click
from rich.console import Group

from harness.contract.registry import Registry
from harness.model.errors import UsageError, unknown
from shardbench import completion, display
from shardbench.command import command
from shardbench.completion import KINDS
from shardbench.display import listings
from shardbench.options import found_registry


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
    listed = {
        "families": lambda: listings.families(families),
        "variants": lambda: listings.variants(families, sources),
        "workloads": lambda: listings.workloads(families, sources),
        "topologies": lambda: listings.topologies(sources),
    }
    for kind in KINDS:
        if what in ("all", kind):
            display.show(Group(*listed[kind]()))

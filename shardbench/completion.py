"""Shell completion of names: families, variants, workloads, topologies and libraries."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from click import Context, Parameter
from click.shell_completion import CompletionItem

from harness.contract import Family
from harness.contract.registry import load_registry

Completer = Callable[[Context, Parameter, str], list[CompletionItem]]
"""What click calls with a command line and a typed text."""


def families(_: Context, __: Parameter, typed: str) -> list[CompletionItem]:
    """Complete the name of a family."""
    return _items(load_registry().families, typed)


def suites(context: Context, parameter: Parameter, typed: str) -> list[CompletionItem]:
    """Complete the name of a family, or of a suite of all families."""
    named = [name for name in ("default", "large") if name.startswith(typed)]
    return [*map(CompletionItem, named), *families(context, parameter, typed)]


def cells(context: Context, parameter: Parameter, typed: str) -> list[CompletionItem]:
    """Complete FAMILY or FAMILY/VARIANT."""
    name, slash, _ = typed.partition("/")
    if not slash:
        return families(context, parameter, typed)
    return _items(_variants(_families(name)), typed, f"{name}/")


def variants(context: Context, _: Parameter, typed: str) -> list[CompletionItem]:
    """Complete the name of a variant, or the last of several with commas between."""
    before, comma, _last = typed.rpartition(",")
    return _items(_variants(_chosen_families(context)), typed, before + comma)


def workloads(context: Context, _: Parameter, typed: str) -> list[CompletionItem]:
    """Complete the name of a workload."""
    return _items(
        (load for family in _chosen_families(context) for load in family.workloads()), typed
    )


def topologies(_: Context, __: Parameter, typed: str) -> list[CompletionItem]:
    """Complete the name of a preset."""
    from harness.topologies.lookup import presets

    rows = presets().items()
    return [CompletionItem(name, help=row.gpu) for name, row in rows if name.startswith(typed)]


def libraries(kind: Any) -> Completer:
    """Return a function that completes the name of a library with releases, or with commits."""

    def complete(_: Context, __: Parameter, typed: str) -> list[CompletionItem]:
        from harness.series.points import libraries

        names = libraries(load_registry(), kind)
        return [CompletionItem(name) for name in names if name.startswith(typed)]

    return complete


def _items(things: Iterable[Any], typed: str, before: str = "") -> list[CompletionItem]:
    """Return `before` and the name of each thing for which they begin as typed."""
    summaries = {before + thing.name: thing.summary for thing in things}
    return [CompletionItem(n, help=text) for n, text in summaries.items() if n.startswith(typed)]


def _variants(families: Iterable[Family[Any, Any]]) -> Iterable[Any]:
    return (variant for family in families for variant in family.variants.values())


def _chosen_families(context: Context) -> Sequence[Family[Any, Any]]:
    """Return the family in the command line, or all families."""
    # While an option lacks its value, click leaves the arguments before it unread.
    unread = next(iter(context.args), "")
    name = str(context.params.get("family") or context.params.get("cell") or unread)
    return _families(name.partition("@")[0].partition("/")[0])


def _families(name: str) -> Sequence[Family[Any, Any]]:
    every = load_registry().families
    return [family for family in every if family.name == name] or every

"""Shell completion: names of families, variants, workloads, topologies and libraries."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from click import Context, Parameter
from click.shell_completion import CompletionItem

from harness.contract import Family
from harness.contract.registry import load_registry

Described = Iterable[tuple[str, str]]
"""Names with descriptions, which some shells show."""
Completer = Callable[[Context, Parameter, str], list[CompletionItem]]


def _completer(names: Callable[[Context, str], Described]) -> Completer:
    """Return a function for click that completes the names for a command line and a typed text."""

    def complete(context: Context, _: Parameter, typed: str) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=description)
            for name, description in names(context, typed)
            if name.startswith(typed)
        ]

    return complete


def _chosen_families(context: Context) -> Sequence[Family[Any, Any]]:
    """Return the family in the command line, or all families."""
    # While an option lacks its value, click leaves the arguments before it unread.
    unread = next(iter(context.args), "")
    given = context.params
    name = str(given.get("family") or given.get("cell") or unread)
    return _families(name.partition("@")[0].partition("/")[0])


def _families(name: str) -> Sequence[Family[Any, Any]]:
    every = load_registry().families
    return [family for family in every if family.name == name] or every


def _variants(families: Iterable[Family[Any, Any]]) -> Described:
    return {v.name: v.summary for family in families for v in family.variants.values()}.items()


def _cells(_: Context, typed: str) -> Described:
    name, slash, _rest = typed.partition("/")
    if not slash:
        return [(family.name, family.summary) for family in load_registry().families]
    return [(f"{name}/{variant}", summary) for variant, summary in _variants(_families(name))]


def _listed_variants(context: Context, typed: str) -> Described:
    before, comma, _ = typed.rpartition(",")
    chosen = _variants(_chosen_families(context))
    return [(before + comma + name, summary) for name, summary in chosen]


def _workloads(context: Context, _: str) -> Described:
    every = (load for family in _chosen_families(context) for load in family.workloads())
    return {workload.name: workload.summary for workload in every}.items()


def _topologies(_: Context, __: str) -> Described:
    from harness.topologies.lookup import presets

    return [(name, row.gpu) for name, row in presets().items()]


def _libraries(kind: Any) -> Completer:
    def names(_: Context, __: str) -> Described:
        from harness.series.points import libraries

        return [(name, "") for name in libraries(load_registry(), kind)]

    return _completer(names)


KINDS = ("families", "variants", "workloads", "topologies")
_SUITES = [("default", "the families' own problems"), ("large", "their large problems")]

families = _completer(lambda _, __: _cells(_, ""))
families_and_suites = _completer(lambda _, __: [*_SUITES, *_cells(_, "")])
cells = _completer(_cells)
variant = _completer(lambda context, _: _variants(_chosen_families(context)))
variants = _completer(_listed_variants)
workloads = _completer(_workloads)
topologies = _completer(_topologies)
libraries_with_releases = _libraries("releases")
libraries_with_commits = _libraries("commits")
kinds = _completer(lambda _, __: [(name, "") for name in KINDS])

"""Completion of names in a shell: families, variants, workloads, topologies, and ids of them."""

from collections.abc import Iterable, Iterator
from typing import Any

import typer

from harness.contract import Family
from harness.contract.registry import load_registry
from harness.series.points import Kind, libraries
from harness.topologies.lookup import presets

_KINDS = ("families", "variants", "workloads", "topologies")

Found = Iterable[tuple[str, str]]
"""Names with descriptions, which some shells show next to them."""


def kinds(incomplete: str) -> Iterator[str]:
    """Complete the kinds of `shardbench list`."""
    return (kind for kind in _KINDS if kind.startswith(incomplete))


def families(incomplete: str) -> Found:
    """Complete the name of a family."""
    found = ((family.name, family.summary) for family in load_registry().families)
    return _beginning(found, incomplete)


def families_and_suites(incomplete: str) -> Found:
    """Complete the name of a suite or a family."""
    suites = [("default", "the families' own problems"), ("large", "their large problems")]
    return [*_beginning(suites, incomplete), *families(incomplete)]


def cells(incomplete: str) -> Found:
    """Complete FAMILY, and FAMILY/VARIANT once there is a slash."""
    name, slash, _ = incomplete.partition("/")
    if not slash:
        return families(incomplete)
    found = (
        (f"{name}/{variant}", said)
        for family in _families(name)
        for variant, said in _variants(family)
    )
    return _beginning(found, incomplete)


def variant(context: typer.Context, incomplete: str) -> Found:
    """Complete the name of a variant of the family that the command names, or of any."""
    found = (found for family in _families(_named(context)) for found in _variants(family))
    return _beginning(found, incomplete)


def variants(context: typer.Context, incomplete: str) -> Found:
    """Complete the last of several variants with commas between."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + name, said) for name, said in variant(context, last)]


def workloads(context: typer.Context, incomplete: str) -> Found:
    """Complete the name of a workload of the family that the command names, or of any."""
    found = (
        (workload.name, workload.summary)
        for family in _families(_named(context))
        for workload in family.workloads()
    )
    return _beginning(found, incomplete)


def topologies(incomplete: str) -> Found:
    """Complete the name of a preset."""
    return _beginning(((name, row.gpu) for name, row in presets().items()), incomplete)


def libraries_with_releases(incomplete: str) -> Found:
    """Complete the name of a library with releases to measure."""
    return _libraries("releases", incomplete)


def libraries_with_commits(incomplete: str) -> Found:
    """Complete the name of a library with commits to measure."""
    return _libraries("commits", incomplete)


def _libraries(kind: Kind, incomplete: str) -> Found:
    return _beginning(((name, "") for name in libraries(load_registry(), kind)), incomplete)


def _named(context: typer.Context) -> str:
    given: dict[str, Any] = context.params
    name = str(given.get("family") or given.get("cell") or "")
    return name.partition("@")[0].partition("/")[0]


def _families(name: str) -> list[Family[Any, Any]]:
    every = load_registry().families
    return [family for family in every if family.name == name] or list(every)


def _variants(family: Family[Any, Any]) -> Iterator[tuple[str, str]]:
    for found in family.variants.values():
        yield found.name, found.summary


def _beginning(found: Found, incomplete: str) -> list[tuple[str, str]]:
    return [(name, said) for name, said in dict(found).items() if name.startswith(incomplete)]

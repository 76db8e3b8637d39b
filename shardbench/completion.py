"""Shell completion: names of families, variants, workloads, topologies and libraries.

These functions return all names; Typer filters by the typed text. Some shells show descriptions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from harness.contract import Family
from harness.contract.registry import load_registry
from harness.series.points import Kind, libraries
from harness.topologies.lookup import presets

Found = Sequence[tuple[str, str]]
"""Names with descriptions."""


def kinds() -> list[str]:
    """Return the arguments of `shardbench list`."""
    return ["families", "variants", "workloads", "topologies"]


def families() -> Found:
    """Return the names and summaries of all families."""
    return [(family.name, family.summary) for family in load_registry().families]


def families_and_suites() -> Found:
    """Return the names and descriptions of the built-in suites and of all families."""
    suites = [("default", "the families' own problems"), ("large", "their large problems")]
    return [*suites, *families()]


def cells(incomplete: str) -> Found:
    """Return family names, or FAMILY/VARIANT names if the typed text has a slash."""
    name, slash, _ = incomplete.partition("/")
    if not slash:
        return families()
    found = _variants(_families(name))
    return [(f"{name}/{variant}", summary) for variant, summary in found.items()]


def variant(context: typer.Context) -> Found:
    """Return the variants of the family in the command line, or of all families."""
    return list(_variants(_families(_named(context))).items())


def variants(context: typer.Context, incomplete: str) -> Found:
    """Complete a comma-separated list: return each variant after the names typed before."""
    before, comma, _ = incomplete.rpartition(",")
    return [(before + comma + name, summary) for name, summary in variant(context)]


def workloads(context: typer.Context) -> Found:
    """Return the workloads of the family in the command line, or of all families."""
    found = (load for family in _families(_named(context)) for load in family.workloads())
    return list({workload.name: workload.summary for workload in found}.items())


def topologies() -> Found:
    """Return the names of the built-in topologies, with their GPUs."""
    return [(name, row.gpu) for name, row in presets().items()]


def libraries_with_releases() -> list[str]:
    """Return the libraries that `shardbench releases` can measure."""
    return _libraries("releases")


def libraries_with_commits() -> list[str]:
    """Return the libraries that `shardbench history` can measure."""
    return _libraries("commits")


def _libraries(kind: Kind) -> list[str]:
    return list(libraries(load_registry(), kind))


def _named(context: typer.Context) -> str:
    given: dict[str, Any] = context.params
    # While an option lacks its value, click leaves the arguments before it unread.
    unread = next(iter(context.args), "")
    name = str(given.get("family") or given.get("cell") or unread)
    return name.partition("@")[0].partition("/")[0]


def _families(name: str) -> Sequence[Family[Any, Any]]:
    every = load_registry().families
    return [family for family in every if family.name == name] or every


def _variants(found: Sequence[Family[Any, Any]]) -> Mapping[str, str]:
    return {known.name: known.summary for family in found for known in family.variants.values()}

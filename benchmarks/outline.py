"""The outline of each family for asv: variants, problems, figures, the same at every commit."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, json

from harness.contract import Quality
from harness.contract.registry import Registry

OUTLINE_FILE = "SHARDBENCH_ASV_OUTLINE"
SMOKE = "SHARDBENCH_ASV_SMOKE"
"""Set for a smoke test: only the first two variants of each family, on its first problem."""


class Outline(Struct, frozen=True):
    """A family's parameters, variants times problems, and the figures that are tracked."""

    variants: tuple[str, ...]
    problems: tuple[str, ...]
    figures: tuple[Quality, ...]


def outlines(registry: Registry) -> Mapping[str, Outline]:
    """Return the outline of each family by name.

    asv passes a cell to a commit as its number among the parameters. With each commit's own
    parameters, a variant more or less would shift the numbers and put times under wrong names. So
    all commits use the parameters of the commit at which asv discovers the suite: the environment
    names a file for them, which is absent during discovery.
    """
    name = os.environ.get(OUTLINE_FILE)
    if name is None:
        return registered(registry)
    file = Path(name)
    if not file.exists():
        file.write_bytes(json.encode(registered(registry)))
    return json.decode(file.read_bytes(), type=dict[str, Outline])


def registered(registry: Registry) -> Mapping[str, Outline]:
    """Return the outlines of the families that work here; note those that are left out."""
    for name, reason in registry.failures.items():
        note(f"Family '{name}' could not be loaded: {reason}")
    found = {}
    for family in registry.families:
        missing = [variant.missing() for variant in family.variants.values()]
        if all(missing):
            note(f"Family '{family.name}' is not installed: it needs {', '.join(missing[0])}.")
            continue
        variants, problems = tuple(family.variants), family.benchmarks
        if os.environ.get(SMOKE):
            variants, problems = variants[:2], problems[:1]
        found[family.name] = Outline(
            variants,
            problems,
            (*family.qualities, *(Quality(counter.name, "count") for counter in family.counters)),
        )
    return found


def note(text: str) -> None:
    """Write to standard error, where `asv --show-stderr` finds it."""
    sys.stderr.write(f"{text}\n")

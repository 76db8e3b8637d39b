"""The variants, problems and figures of each family for asv, the same at every commit."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, json

from harness.contract import Quality
from harness.contract.registry import Registry
from harness.model.errors import RegistryError

OUTLINE_FILE = "SHARDBENCH_ASV_OUTLINE"
SMOKE = "SHARDBENCH_ASV_SMOKE"
"""Set for a smoke test: only the first two variants of each family, on its first problem."""


class Outline(Struct, frozen=True):
    """The variants and problems of a family, asv's two parameters, and the figures to track."""

    variants: tuple[str, ...]
    problems: tuple[str, ...]
    figures: tuple[Quality, ...]


def outlines(registry: Registry) -> Mapping[str, Outline]:
    """Return the outline of each family, by the family's name.

    asv identifies a cell by its index among the parameters. If each commit used its own parameters,
    an added variant would shift the indices and put times under wrong names. So all commits use the
    outlines of the commit at which asv discovers the suite. Discovery writes them to the file that
    the environment variable names; later processes read that file.
    """
    name = os.environ.get(OUTLINE_FILE)
    if name is None:
        return registered(registry)
    file = Path(name)
    if not file.exists():
        file.write_bytes(json.encode(registered(registry)))
    return json.decode(file.read_bytes(), type=dict[str, Outline])


def registered(registry: Registry) -> Mapping[str, Outline]:
    """Return the outlines of the installed families; report the others on standard error.

    Raise RegistryError if a family cannot be loaded: asv must not pass without its benchmarks.
    """
    for name, reason in registry.failures.items():
        raise RegistryError(f"Family '{name}' could not be loaded: {reason}")
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
    """Write a line to standard error, which `asv --show-stderr` shows."""
    sys.stderr.write(f"{text}\n")

"""The outline of each family for asv: variants, problems, figures, the same at every commit."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.contract.registry import Registry

OUTLINE_FILE = "SHARDBENCH_ASV_OUTLINE"
SMOKE = "SHARDBENCH_ASV_SMOKE"
"""Set for a smoke: of each family its first two variants on its first problem alone."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A quality or a counter of a decision, with its unit and which direction is better."""

    name: str
    unit: str
    better: str


@dataclass(frozen=True, slots=True)
class Outline:
    """A family's parameters, variants times problems, and the figures that are tracked."""

    variants: tuple[str, ...]
    problems: tuple[str, ...]
    figures: tuple[Figure, ...]


def outlines(registry: Registry) -> Mapping[str, Outline]:
    """Return the outline of each family by name.

    asv passes a cell to a commit as its number among the parameters. They are therefore those of
    the commit that asv discovered the suite at: the environment names a file for them, which is
    absent while asv discovers. Were each commit's own registry asked, a variant more or less would
    shift the numbers, and times would land under the wrong names.
    """
    name = os.environ.get(OUTLINE_FILE)
    if name is None:
        return registered(registry)
    file = Path(name)
    if not file.exists():
        known = {name: asdict(outline) for name, outline in registered(registry).items()}
        file.write_text(json.dumps(known), encoding="utf-8")
    return {
        name: Outline(
            tuple(outline["variants"]),
            tuple(outline["problems"]),
            tuple(Figure(**figure) for figure in outline["figures"]),
        )
        for name, outline in json.loads(file.read_text(encoding="utf-8")).items()
    }


def registered(registry: Registry) -> Mapping[str, Outline]:
    """Return the outlines of the families that work here; standard error says what is left out."""
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
            (
                *(Figure(each.name, each.unit, each.better) for each in family.qualities),
                *(Figure(each.name, "count", "lower") for each in family.counters),
            ),
        )
    return found


def note(text: str) -> None:
    """Say something on standard error, where `asv --show-stderr` finds it."""
    sys.stderr.write(f"{text}\n")

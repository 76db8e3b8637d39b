"""A library whose releases or commits are measured, and a family that has it."""

from pathlib import Path
from typing import Any

import toy

from harness.contract import Abilities, Family

LIBRARY = "toylib"


def write_driver(folder: Path, source: str) -> Path:
    """Write a driver into a folder of its own; return its path."""
    driver = folder / "driver" / "driver.py"
    driver.parent.mkdir(parents=True, exist_ok=True)
    driver.write_text(source)
    return driver


def family(**abilities: Any) -> Family[Any, Any]:
    """Return a family that has the library, with a reference and nothing else."""
    found: Family[Any, Any] = Family(
        name="toy-library",
        summary="",
        implementation=toy.TOY.implementation,
        qualities=(),
        abilities=Abilities(**abilities),
    )
    found.variant("reference", reference=True)(lambda problem: problem)
    return found

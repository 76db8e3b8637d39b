"""The families that are known, found through entry points."""

from collections.abc import Iterable
from functools import cache
from importlib import metadata
from typing import Any

from harness.contract.family import Family
from harness.model.errors import RegistryError, UsageError, unknown

ENTRY_POINTS = "shardbench.families"


class Registry:
    """The families that are known, each checked when it is added."""

    def __init__(self, families: Iterable[Family[Any, Any]] = ()) -> None:
        self._families: dict[str, Family[Any, Any]] = {}
        self.failures: dict[str, str] = {}
        for family in families:
            self.add(family)

    def add(self, family: Family[Any, Any]) -> None:
        """Register a family; raises RegistryError where it contradicts itself or another.

        A family that is known already is checked again: a package may add variants to it, and
        offer it under an entry point of its own so that they are found. Where they contradict it,
        the family is no longer known.
        """
        if self._families.get(family.name, family) is not family:
            raise RegistryError(f"Two families are named '{family.name}'.")
        self._families.pop(family.name, None)
        try:
            family.check()
        except RegistryError as error:
            self.failures[family.name] = str(error)
            raise
        self._families[family.name] = family

    @property
    def families(self) -> tuple[Family[Any, Any], ...]:
        """All families, by name."""
        return tuple(self._families[name] for name in sorted(self._families))

    def find(self, name: str) -> Family[Any, Any]:
        """Return a family by name; raises UsageError with close names, or why it did not load."""
        if name in self._families:
            return self._families[name]
        if name in self.failures:
            raise UsageError(f"Family '{name}' could not be loaded: {self.failures[name]}")
        raise unknown("family", name, self._families)


@cache
def family_modules() -> tuple[str, ...]:
    """Return the modules that the entry points name, which every `load_registry` imports."""
    return tuple(sorted({found.module for found in metadata.entry_points(group=ENTRY_POINTS)}))


def load_registry(entry_points: Iterable[metadata.EntryPoint] | None = None) -> Registry:
    """Find families through the entry-point group `shardbench.families`.

    A family that cannot be imported or is refused is kept in `failures` with the reason, and the
    others work on.
    """
    registry = Registry()
    if entry_points is None:
        entry_points = metadata.entry_points(group=ENTRY_POINTS)
    for entry_point in entry_points:
        try:
            registry.add(entry_point.load())
        except Exception as error:  # somebody else's package may raise anything
            registry.failures[entry_point.name] = str(error) or type(error).__name__
    return registry

"""The registry of planner families, which are found through entry points."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from typing import Any

from harness.contract.family import Family
from harness.model.errors import RegistryError, UsageError, unknown
from harness.model.statement import Statement

ENTRY_POINTS = "shardbench.families"


class Registry:
    """The known families; `failures` has, by name, the reason why a family could not be loaded."""

    def __init__(self, families: Iterable[Family[Any, Any]] = ()) -> None:
        self._families: dict[str, Family[Any, Any]] = {}
        self.failures: dict[str, str] = {}
        for family in families:
            self.add(family)

    def add(self, family: Family[Any, Any]) -> None:
        """Check and register a family; raise RegistryError if it is inconsistent.

        It is also an error if another family has its name. A known family is checked again, because
        another package may have added variants and offer the family under its own entry point. If
        that check fails, the family is removed from the registry.
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
        """All families, sorted by name."""
        return tuple(self._families[name] for name in sorted(self._families))

    def find(self, name: str) -> Family[Any, Any]:
        """Return a family by name; raise UsageError if it is unknown or could not be loaded."""
        if name in self._families:
            return self._families[name]
        if name in self.failures:
            raise UsageError(f"Family '{name}' could not be loaded: {self.failures[name]}")
        raise unknown("family", name, self._families)


@cache
def family_modules() -> tuple[str, ...]:
    """Return the names of the entry points' modules; `load_registry` imports all of them."""
    return tuple(sorted({found.module for found in metadata.entry_points(group=ENTRY_POINTS)}))


def load_registry(entry_points: Iterable[metadata.EntryPoint] | None = None) -> Registry:
    """Load families from the entry-point group `shardbench.families`.

    If a family cannot be imported or fails its check, the reason goes into `failures`, and the
    other families are still loaded.
    """
    registry = Registry()
    if entry_points is None:
        entry_points = metadata.entry_points(group=ENTRY_POINTS)
    for entry_point in entry_points:
        try:
            registry.add(entry_point.load())
        except Exception as error:  # another package's import may raise anything
            registry.failures[entry_point.name] = str(error) or type(error).__name__
    return registry


@cache
def installed_statements() -> Mapping[str, tuple[Statement, ...]]:
    """Return the statements of the installed families by family, in the order of reports."""
    families = sorted(load_registry().families, key=lambda family: family.place)
    return {family.name: family.declared_statements() for family in families}

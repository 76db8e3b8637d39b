"""The registry of planner families, which are found through entry points."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from harness.contract.family import Family
from harness.model.errors import RegistryError, UsageError, unknown
from harness.model.statement import Statement

ENTRY_POINTS = "shardbench.families"
_OWN = "shardbench"


class Registry:
    """The known families; one behind an entry point is imported and checked when it is needed.

    `failures` has, by name, the reason why a family could not be loaded, and `failed` is called
    with each of them.
    """

    def __init__(
        self,
        families: Iterable[Family[Any, Any]] = (),
        points: Iterable[EntryPoint] = (),
        failed: Callable[[str, str], None] = lambda name, reason: None,
    ) -> None:
        """Add families; raise RegistryError if one is inconsistent or two have the same name."""
        self._families: dict[str, Family[Any, Any]] = {}
        self._points = list(points)
        self._failed = failed
        self.failures: dict[str, str] = {}
        for family in families:
            family.check()
            self._add(family)

    def _add(self, family: Family[Any, Any]) -> None:
        if self._families.setdefault(family.name, family) is not family:
            raise RegistryError(f"Two families are named '{family.name}'.")

    def _load(self, points: Iterable[EntryPoint]) -> None:
        """Load families, then check them, when all that add variants to them are loaded."""
        unchecked = set()
        for point in points:
            self._points.remove(point)
            try:
                family = point.load()
                self._add(family)
                unchecked.add(family.name)
            except Exception as error:  # another package's import may raise anything
                self._fail(point.name, str(error) or type(error).__name__)
        for name in unchecked:
            try:
                self._families[name].check()
            except RegistryError as error:
                del self._families[name]
                self._fail(name, str(error))

    def _fail(self, name: str, reason: str) -> None:
        self.failures[name] = reason
        self._failed(name, reason)

    @property
    def families(self) -> tuple[Family[Any, Any], ...]:
        """All families, sorted by name."""
        self._load(list(self._points))
        return tuple(self._families[name] for name in sorted(self._families))

    def find(self, name: str) -> Family[Any, Any]:
        """Return a family by name; raise UsageError if it is unknown or could not be loaded."""
        self._load(_needed(self._points, name))
        if name in self._families:
            return self._families[name]
        if name in self.failures:
            raise UsageError(f"Family '{name}' could not be loaded: {self.failures[name]}")
        raise unknown("family", name, (family.name for family in self.families))


def _needed(points: Iterable[EntryPoint], name: str) -> list[EntryPoint]:
    """Return a family's entry point, and those of other packages, which may add variants to it."""
    return [
        point
        for point in points
        if point.name == name or point.dist is None or point.dist.name != _OWN
    ]


@cache
def family_modules(name: str = "") -> tuple[str, ...]:
    """Return the modules to import for a family, or for all families, by their entry points."""
    points: Iterable[EntryPoint] = metadata.entry_points(group=ENTRY_POINTS)
    return tuple(sorted({point.module for point in (_needed(points, name) if name else points)}))


def load_registry(failed: Callable[[str, str], None] = lambda name, reason: None) -> Registry:
    """Return a registry of the families in the entry-point group `shardbench.families`."""
    return Registry(points=metadata.entry_points(group=ENTRY_POINTS), failed=failed)


@cache
def installed_statements(name: str = "") -> Mapping[str, tuple[Statement, ...]]:
    """Return the statements of a family, or of all, by family, in the order of reports."""
    registry = load_registry()
    try:
        families = (registry.find(name),) if name else registry.families
    except UsageError:  # its cells are shown, but it is not installed
        return {}
    in_order = sorted(families, key=lambda family: family.place)
    return {family.name: family.declared_statements() for family in in_order}

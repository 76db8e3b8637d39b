"""The contract between planners and harness: families, variants, and how they are found.

This is the one module of `harness` that a family needs; it re-exports what else a family uses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Generic, TypeVar

from harness.captured_file import Names, is_captured_file, read_captured, read_json
from harness.declarations import (
    Claim,
    Counter,
    Planning,
    Quality,
    RankTable,
    Study,
    Workload,
    check_counters,
    check_qualities,
    check_studies,
)
from harness.errors import (
    InfeasibleDecision,
    NotApplicable,
    RegistryError,
    ShardbenchError,
    UsageError,
    one_line,
    printable,
    unknown,
)
from harness.explanation import Explaining, Explanation, Question, Section
from harness.goals import Goal, check_goals
from harness.inventory import Column, Imported, Importing, ImportRequest, Inventory
from harness.model.topology import CAPTURED, Topology, captured_topology
from harness.model.topology_checks import LibraryTopology, TopologyRow, TopologyTrap
from harness.naming import WorkloadSpec, at_most, one_of, positive_int, whole_number
from harness.reading import read_file
from harness.recorder import Progress, Recorder, is_observing
from harness.releases.calls import count_calls
from harness.releases.declaration import Releases
from harness.supported_releases import SupportedReleases
from harness.upstreams import Upstream
from harness.variants import Measured, Prepared, Variant

__all__ = [
    "CAPTURED",
    "Claim",
    "Column",
    "Counter",
    "Explanation",
    "Family",
    "Goal",
    "ImportRequest",
    "Imported",
    "Importing",
    "InfeasibleDecision",
    "Inventory",
    "LibraryTopology",
    "Measured",
    "Names",
    "NotApplicable",
    "Planning",
    "Prepared",
    "Progress",
    "Quality",
    "Question",
    "RankTable",
    "Recorder",
    "Registry",
    "RegistryError",
    "Releases",
    "Section",
    "ShardbenchError",
    "Study",
    "SupportedReleases",
    "Topology",
    "TopologyRow",
    "TopologyTrap",
    "Upstream",
    "UsageError",
    "Variant",
    "Workload",
    "WorkloadSpec",
    "at_most",
    "captured_topology",
    "count_calls",
    "is_captured_file",
    "is_observing",
    "load_registry",
    "one_line",
    "one_of",
    "positive_int",
    "printable",
    "read_captured",
    "read_file",
    "read_json",
    "unknown",
    "whole_number",
]

ENTRY_POINTS = "shardbench.families"

P = TypeVar("P")
D = TypeVar("D")


@dataclass(slots=True)
class Family(Generic[P, D]):
    """One planning job with several implementations.

    Attributes:
        build: makes the problem from a workload and a sized topology; never timed.
        fingerprint: a stable hash of a decision, equal exactly where decisions are equal.
        validate: raises InfeasibleDecision where a decision cannot be carried out.
        quality: the figures named in `qualities`.
        facts: what to say about a problem; the first one is its size, a number.
        observe: a context manager around one call that records counters, phases and progress; it
            may slow the call, which is never the one that is measured.
        label: how a workload is called in ids, where that differs from how it is given (a file);
            raises UsageError for a workload that does not exist, before anything is built.
        brings: the topology that a workload brings with it, named `captured`, or None where it must
            be placed on one; raises UsageError for a file that cannot be read.
        preload: modules worth importing once before child processes start.
        benchmarks: ids of the problems that asv runs.
        studies: the family's part of the report.
        goals: what its variants are to reach, and the report says whether they do.
        planning: how `shardbench plan` plans with it, None where it does not.
        explaining: why a decision is as it is, for `shardbench explain`; None where it does not
            say.
        capturing: a context manager for `harness.capture`, None where there is none. It is given
            how names are written, and gives a function that returns what was captured so far, as
            plain JSON types, or None where another process captures it; that raises ShardbenchError
            where it cannot be written down.
        inventory: what a workload holds, part by part, for `shardbench workload show`; raises
            UsageError where that depends on the machines and none are given.
        importing: how `shardbench workload import` reads what was written for others.
        topology_arguments: `module:name` of a LibraryTopology, with which `shardbench topology
            check` reads and checks the arguments of the family's library; empty where it has none.
        releases: the library whose releases `shardbench releases` measures, None where there is
            none.
    """

    name: str
    summary: str
    build: Callable[[WorkloadSpec, Topology], P]
    fingerprint: Callable[[D], str]
    validate: Callable[[P, D], None]
    quality: Callable[[P, D], Mapping[str, float]]
    facts: Callable[[P], Mapping[str, float | str]]
    qualities: tuple[Quality, ...]
    observe: Callable[[Recorder], AbstractContextManager[Any]]
    counters: tuple[Counter, ...] = ()
    phases: tuple[str, ...] = ()
    workloads: Callable[[], Iterable[Workload]] = tuple
    label: Callable[[WorkloadSpec], WorkloadSpec] = lambda workload: workload
    brings: Callable[[WorkloadSpec], Topology | None] = lambda workload: None
    requires: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    studies: tuple[Study, ...] = ()
    goals: tuple[Goal, ...] = ()
    planning: Planning[P, D] | None = None
    explaining: Explaining[P, D] | None = None
    capturing: (
        Callable[[Names], AbstractContextManager[Callable[[], Mapping[str, Any] | None]]] | None
    ) = None
    inventory: Callable[[WorkloadSpec, Topology | None], Inventory] | None = None
    importing: Importing | None = None
    topology_arguments: str = ""
    releases: Releases | None = None
    variants: dict[str, Variant[P, D]] = field(default_factory=dict)

    def variant(
        self,
        name: str,
        *,
        summary: str = "",
        source: str = "",
        same_as: str | None = None,
        reference: bool = False,
        claim: Claim | None = None,
        requires: tuple[str, ...] = (),
        upstream: str = "",
    ) -> Callable[[Callable[[P], Any]], Callable[[P], Any]]:
        """Register the decorated function, `problem -> Prepared` or `problem -> decision`.

        `requires` names modules that must be installed, `upstream` the folder of a real library
        that `make upstreams` installs.

        Raises:
            RegistryError: the name is taken, or the family has a reference already.
        """

        def register(prepare: Callable[[P], Any]) -> Callable[[P], Any]:
            if name in self.variants:
                raise RegistryError(f"Family '{self.name}' has two variants named '{name}'.")
            if not name or "@" in name:
                raise RegistryError(f"Variant '{self.name}/{name}' needs a name without '@'.")
            if reference and (other := self._reference()):
                raise RegistryError(
                    f"Family '{self.name}' has two references, '{other.name}' and '{name}'."
                )
            self.variants[name] = Variant(
                name=name,
                prepare=prepare,
                summary=summary or (prepare.__doc__ or "").strip().partition("\n")[0],
                source=source,
                same_as=same_as,
                is_reference=reference,
                claim=claim,
                requires=self.requires + requires,
                upstream=upstream,
            )
            return prepare

        return register

    def _reference(self) -> Variant[P, D] | None:
        return next((v for v in self.variants.values() if v.is_reference), None)

    @property
    def reference(self) -> Variant[P, D]:
        """The variant that the others are compared with; raises RegistryError without one."""
        found = self._reference()
        if found is None:
            raise RegistryError(f"Family '{self.name}' has no reference variant.")
        return found

    def find(self, name: str) -> Variant[P, D]:
        """Return a variant by name; raises UsageError with close names."""
        if name not in self.variants:
            raise unknown(f"variant of family '{self.name}',", name, self.variants)
        return self.variants[name]

    def models_of(self, variant: Variant[P, D]) -> Iterator[Variant[P, D]]:
        """Yield the variants that this one must decide the same as, nearest first."""
        while variant.same_as is not None:
            variant = self.variants[variant.same_as]
            yield variant

    def check(self) -> None:
        """Raise RegistryError where the family contradicts itself, e.g. has no reference."""
        if not self.name or set(self.name) & set("/@"):
            raise RegistryError(f"Family '{self.name}' needs a name without '/' and '@'.")
        check_qualities(self.name, self.qualities)
        check_counters(self.name, self.counters)
        check_studies(self.name, self.reference.name, self.studies)
        check_goals(self.name, self.goals, self.variants, self.qualities)
        if self.planning and self.planning.variant not in self.variants:
            raise RegistryError(
                f"Family '{self.name}' plans with '{self.planning.variant}', which is not "
                "registered."
            )
        for variant in self.variants.values():
            seen = {variant.name}
            target = variant.same_as
            while target is not None:
                if target not in self.variants:
                    raise RegistryError(
                        f"Variant '{self.name}/{variant.name}' must decide the same as "
                        f"'{target}', which is not registered."
                    )
                if target in seen:
                    raise RegistryError(
                        f"Variant '{self.name}/{variant.name}' must decide the same as itself."
                    )
                seen.add(target)
                target = self.variants[target].same_as


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

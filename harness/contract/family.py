"""A family of variants: its declaration, its implementation and its abilities."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack

from harness.contract.abilities.captured_file import Names
from harness.contract.abilities.estimates import BenchOptions, Workbench
from harness.contract.abilities.explanation import Explaining
from harness.contract.abilities.inventory import Importing, Inventory
from harness.contract.abilities.series import Series
from harness.contract.abilities.topology import LibraryTopology
from harness.contract.declarations import (
    Counter,
    Planning,
    Study,
    Workload,
    check_counters,
    check_goals,
    check_overview,
    check_qualities,
    check_studies,
)
from harness.contract.recorder import Recorder
from harness.contract.variants import Prepared, Variant
from harness.model.cell import Claim
from harness.model.decisions import models_of
from harness.model.errors import RegistryError, unknown
from harness.model.ids import WorkloadSpec
from harness.model.overview import Goal, OverviewRow
from harness.model.quality import Quality
from harness.model.topology import Topology

P = TypeVar("P")
D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)

Prepare = Callable[[P], Prepared[Any]]


class Declared(TypedDict, total=False):
    """The declaration of a variant, without its name."""

    summary: str
    source: str
    same_as: str | None
    reference: bool
    claim: Claim | None
    requires: tuple[str, ...]
    upstream: str


class Implementation(Protocol[P, D_contra]):
    """A family's work on its own problems and decisions: a module, or an object, with these."""

    def build(self, workload: WorkloadSpec, topology: Topology) -> P:
        """Make the problem of a workload on a sized topology; never timed."""
        ...

    def facts(self, problem: P) -> Mapping[str, float | str]:
        """Return facts about a problem for reports; the first one is its size, a number."""
        ...

    def fingerprint(self, decision: D_contra) -> str:
        """Return a stable hash of a decision, equal exactly where decisions are equal."""
        ...

    def validate(self, problem: P, decision: D_contra) -> None:
        """Raise InfeasibleDecision where a decision cannot be carried out."""
        ...

    def quality(self, problem: P, decision: D_contra) -> Mapping[str, float]:
        """Return the figures that the family's `qualities` name."""
        ...

    def observe(self, recorder: Recorder) -> AbstractContextManager[Any]:
        """Record counters, phases and progress of the call inside.

        It may slow the call, which is never the one that is measured.
        """
        ...


Capturing = Callable[[Names], AbstractContextManager[Callable[[], Mapping[str, Any] | None]]]


@dataclass(frozen=True, slots=True)
class Abilities(Generic[P, D]):
    """What a family can do beyond comparing variants: objects, or their names, "module:name".

    Attributes:
        planning: how `shardbench plan` plans.
        explain: explains a decision, for `shardbench explain`.
        capture: a context manager for `shardbench.capture`. It takes the writer of names, and
            yields a function that returns the content captured so far as plain JSON types, or None
            where another process captures it. The function raises ShardbenchError for content that
            no file can hold.
        inventory: returns the parts of a workload, for `shardbench workload show`; raises
            UsageError where they depend on the machines and none are given.
        importing: how `shardbench workload import` reads files of other programs.
        series: the library with the releases of `shardbench releases` and the commits of
            `shardbench history`.
        figures: figures that hold for every decision on a problem, such as a proven bound. The
            function takes the known figures, keeps them for `quality`, works out the others and
            returns all. A comparison calls it once, before any variant runs.
        measuring: the workbench that measures decisions on this machine and calibrates it.
        topology: the library's arguments for a topology, and their traps, for
            `shardbench topology check` and `show`.
    """

    planning: Planning[P, D] | str | None = None
    explain: Explaining[P, D] | str | None = None
    capture: Capturing | str | None = None
    inventory: Callable[[WorkloadSpec, Topology | None], Inventory] | str | None = None
    importing: Importing | str | None = None
    series: Series | str | None = None
    topology: LibraryTopology | str | None = None
    measuring: Callable[[BenchOptions], Workbench[P]] | str | None = None
    figures: Callable[[P, Mapping[str, float]], Mapping[str, float]] | str | None = None


def load(named: Any) -> Any:
    """Import and return the object of "module" or "module:name"; return others unchanged."""
    if not isinstance(named, str):
        return named
    module, _, name = named.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


@dataclass(slots=True)
class Family(Generic[P, D]):
    """One planning job with several implementations.

    Attributes:
        implementation: its work on problems and decisions, or the name of the module with it, which
            is imported when first needed: listing must be quick, and work without heavy libraries.
        workloads: lists the workloads for `shardbench list workloads`.
        label: returns a workload's name in ids, where it differs from the given one (a file);
            raises UsageError for a workload that does not exist, before anything is built.
        brings: returns the topology of a captured workload, named `captured`, or None where a
            workload has none; raises UsageError for a file that cannot be read.
        requires: modules that all of its variants need.
        preload: other modules worth importing once before child processes start.
        benchmarks: ids of the problems that asv runs.
        studies: the family's part of the report.
        goals: the goals of its variants, which reports judge.
        overview: its rows of the table that a report opens with.
        abilities: its abilities beyond comparing variants.
    """

    name: str
    summary: str
    implementation: Implementation[P, D] | str
    qualities: tuple[Quality, ...]
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
    overview: tuple[OverviewRow, ...] = ()
    abilities: Abilities[P, D] = field(default_factory=Abilities)
    variants: dict[str, Variant[P, D]] = field(default_factory=dict)

    @property
    def work(self) -> Implementation[P, D]:
        """The implementation, imported now at the latest."""
        found: Implementation[P, D] = load(self.implementation)
        return found

    @property
    def package(self) -> str:
        """The package of its implementation, which holds the family's sources."""
        named = self.implementation
        module = named.partition(":")[0] if isinstance(named, str) else type(named).__module__
        return module.rpartition(".")[0] or module

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules worth importing once before child processes start."""
        named = self.implementation if isinstance(self.implementation, str) else ""
        return (*([named.partition(":")[0]] if named else []), *self.preload)

    def decider(
        self, name: str, **declared: Unpack[Declared]
    ) -> Callable[[Callable[[P], D]], Callable[[P], D]]:
        """Register the decorated function, `problem -> decision`; its whole call is timed.

        Arguments and errors are those of `variant`.
        """

        def register(decide: Callable[[P], D]) -> Callable[[P], D]:
            @wraps(decide)
            def prepare(problem: P) -> Prepared[D]:
                return Prepared(run=lambda: decide(problem))

            self.variant(name, **declared)(prepare)
            return decide

        return register

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
    ) -> Callable[[Prepare[P]], Prepare[P]]:
        """Register the decorated function, `problem -> Prepared`; `run` is timed.

        `requires` names modules that must be installed, `upstream` the folder of a real library
        that `make upstreams` installs. Raises RegistryError for a name or a reference that is there
        already.
        """

        def register(prepare: Prepare[P]) -> Prepare[P]:
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

    def models_of(self, variant: Variant[P, D]) -> list[Variant[P, D]]:
        """Return the variants that this one must decide the same as, nearest first."""
        return [self.variants[name] for name in models_of(variant.name, self._same_as)]

    @property
    def _same_as(self) -> dict[str, str | None]:
        return {name: variant.same_as for name, variant in self.variants.items()}

    def check(self) -> None:
        """Raise RegistryError where the family contradicts itself, e.g. has no reference."""
        if not self.name or set(self.name) & set("/@"):
            raise RegistryError(f"Family '{self.name}' needs a name without '/' and '@'.")
        check_qualities(self.name, self.qualities)
        check_counters(self.name, self.counters)
        check_studies(self.name, self.reference.name, self.studies)
        check_goals(self.name, self.goals, self.variants, self.qualities)
        check_overview(self.name, self.overview, self.variants, self.counters)
        planning = self.abilities.planning
        if isinstance(planning, Planning) and planning.variant not in self.variants:
            raise RegistryError(
                f"Family '{self.name}' plans with '{planning.variant}', which is not registered."
            )
        for name in self.variants:
            must = f"Variant '{self.name}/{name}' must decide the same as"
            last = [name, *models_of(name, self._same_as)][-1]
            if last not in self.variants:
                raise RegistryError(f"{must} '{last}', which is not registered.")
            if self._same_as[last] is not None:  # it stands in the chain already
                raise RegistryError(f"{must} itself.")

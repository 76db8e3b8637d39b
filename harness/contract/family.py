"""The contract between planners and harness: a family of variants, and what is declared of it."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack

from harness.contract.abilities.captured_file import Names
from harness.contract.abilities.estimates import BenchOptions, Workbench
from harness.contract.abilities.explanation import Explaining
from harness.contract.abilities.history import History
from harness.contract.abilities.inventory import Importing, Inventory
from harness.contract.abilities.releases import Releases
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
from harness.model.cell import Claim, Goal
from harness.model.errors import RegistryError, unknown
from harness.model.ids import WorkloadSpec
from harness.model.overview import OverviewRow
from harness.model.quality import Quality
from harness.model.topology import Topology

P = TypeVar("P")
D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)

Prepare = Callable[[P], Prepared[Any]]


class Declared(TypedDict, total=False):
    """What is declared of a variant beside its name."""

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
        """Return what to say about a problem; the first fact is its size, a number."""
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
    """What a family can do beyond being compared, each as it is or as "module:name".

    Attributes:
        planning: how `shardbench plan` plans with it.
        explain: why a decision is as it is, for `shardbench explain`.
        capture: a context manager for `shardbench.capture`. It is given how names are written, and
            gives a function that returns what was captured so far, as plain JSON types, or None
            where another process captures it; that raises ShardbenchError where it cannot be
            written down.
        inventory: what a workload holds, part by part, for `shardbench workload show`; raises
            UsageError where that depends on the machines and none are given.
        importing: how `shardbench workload import` reads what was written for others.
        releases: the library whose releases `shardbench releases` measures.
        history: the library whose commits `shardbench history` measures.
        figures: what holds for every decision on a problem, such as a proven bound. It is given
            the figures that are worked out already, keeps them for `quality`, works out the others
            and returns them all. With it a comparison works them out once, before any variant runs.
        measuring: the workbench that measures its decisions on this machine and calibrates it.
        topology: the arguments that its library takes a topology by, and the traps there, for
            `shardbench topology check` and `show`.
    """

    planning: Planning[P, D] | str | None = None
    explain: Explaining[P, D] | str | None = None
    capture: Capturing | str | None = None
    inventory: Callable[[WorkloadSpec, Topology | None], Inventory] | str | None = None
    importing: Importing | str | None = None
    releases: Releases | str | None = None
    history: History | str | None = None
    topology: LibraryTopology | str | None = None
    measuring: Callable[[BenchOptions], Workbench[P]] | str | None = None
    figures: Callable[[P, Mapping[str, float]], Mapping[str, float]] | str | None = None


def load(named: Any) -> Any:
    """Return what "module" or "module:name" names, imported now; anything else as it is."""
    if not isinstance(named, str):
        return named
    module, _, name = named.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


@dataclass(slots=True)
class Family(Generic[P, D]):
    """One planning job with several implementations.

    Attributes:
        implementation: its work on problems and decisions, or the name of the module that has it,
            which is imported when it is first needed: listing must be quick, and must work where
            heavy libraries are missing.
        workloads: what `shardbench list workloads` shows.
        label: how a workload is called in ids, where that differs from how it is given (a file);
            raises UsageError for a workload that does not exist, before anything is built.
        brings: the topology that a workload brings with it, named `captured`, or None where it must
            be placed on one; raises UsageError for a file that cannot be read.
        requires: modules that all of its variants need.
        preload: modules worth importing once before child processes start, beside its own.
        benchmarks: ids of the problems that asv runs.
        studies: the family's part of the report.
        goals: what its variants are to reach, and the report says whether they do.
        overview: its rows of the table that a report opens with.
        abilities: what it can do beyond being compared.
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
    def modules(self) -> tuple[str, ...]:
        """Modules worth importing once before child processes start."""
        named = self.implementation if isinstance(self.implementation, str) else ""
        return (*([named.partition(":")[0]] if named else []), *self.preload)

    def decider(
        self, name: str, **declared: Unpack[Declared]
    ) -> Callable[[Callable[[P], D]], Callable[[P], D]]:
        """Register the decorated function, `problem -> decision`: all that it does is timed.

        For what it declares, and for errors, see `variant`.
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
        """Register the decorated function, `problem -> Prepared`, whose `run` is timed.

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
        check_overview(self.name, self.overview, self.variants, self.counters)
        planning = self.abilities.planning
        if isinstance(planning, Planning) and planning.variant not in self.variants:
            raise RegistryError(
                f"Family '{self.name}' plans with '{planning.variant}', which is not registered."
            )
        for variant in self.variants.values():
            must = f"Variant '{self.name}/{variant.name}' must decide the same as"
            seen, target = {variant.name}, variant.same_as
            while target is not None:
                if target not in self.variants:
                    raise RegistryError(f"{must} '{target}', which is not registered.")
                if target in seen:
                    raise RegistryError(f"{must} itself.")
                seen.add(target)
                target = self.variants[target].same_as

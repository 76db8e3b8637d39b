"""A family of planner variants: its declaration, its implementation and its abilities."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import wraps
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack

from msgspec import Struct

from harness.contract.abilities import Abilities, load
from harness.contract.recorder import Recorder
from harness.contract.variants import Prepared, UpstreamProblem, Variant
from harness.model.cell import ClockName
from harness.model.errors import RegistryError, UsageError, unknown
from harness.model.ids import ProblemId, WorkloadSpec
from harness.model.quality import Quality, models_of
from harness.model.statement import PEAK_MEMORY, SECONDS, TIMES_FASTER, Claim, Statement
from harness.model.topology import Topology

P = TypeVar("P")
D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)

Prepare = Callable[[P], Prepared[Any]]


class Counter(Struct, frozen=True):
    """A deterministic count of work done in one call.

    `sufficient` is the count that one call needs: a number, or the name of another counter; None if
    it is not known. All work beyond it is repeated work.
    """

    name: str
    meaning: str
    sufficient: int | str | None = None


class Workload(Struct, frozen=True):
    """A workload's line in `shardbench list workloads`."""

    name: str
    summary: str
    source: str


class Study(Struct, frozen=True):
    """A problem of the family's suite, and the variants to run on it.

    `against` names the variant to compare the others with; None means the family's reference. The
    default report leaves out `large` studies. Variants in `counted` are checked and their work is
    counted, but they are not timed.
    """

    problem: str
    variants: tuple[str, ...]
    purpose: str
    against: str | None = None
    large: bool = False
    counted: tuple[str, ...] = ()


class Declared(TypedDict, total=False):
    """The keyword arguments of `Family.variant`, which describe a variant.

    `requires` names modules that must be installed, `upstream` the folder of a real library that
    `make upstreams` installs.
    """

    summary: str
    source: str
    same_as: str | None
    reference: bool
    claim: Claim | None
    requires: tuple[str, ...]
    upstream: str


class Implementation(Protocol[P, D_contra]):
    """The functions of a family on its problems and decisions, in a module or an object."""

    def build(self, workload: WorkloadSpec, topology: Topology) -> P:
        """Build the problem of a workload on a topology with a number of GPUs; never timed.

        It may be an `UpstreamProblem`; the other functions are not called with that.
        """
        ...

    def facts(self, problem: P) -> Mapping[str, float | str]:
        """Return facts about a problem for reports; the first fact is its size, a number."""
        ...

    def fingerprint(self, decision: D_contra) -> str:
        """Return a hash of a decision; two hashes are equal if and only if the decisions are."""
        ...

    def validate(self, problem: P, decision: D_contra) -> None:
        """Raise InfeasibleDecision if a decision cannot be deployed, e.g. exceeds memory."""
        ...

    def quality(self, problem: P, decision: D_contra) -> Mapping[str, float]:
        """Return a decision's figure for each of the family's `qualities`, by name."""
        ...

    def observe(self, recorder: Recorder) -> AbstractContextManager[Any]:
        """Record counters, phases and progress of the call inside the `with` block.

        Observing may slow the call, because an observed call is never timed.
        """
        ...


_UPSTREAM_WORK: Any = SimpleNamespace(
    facts=attrgetter("facts"),
    fingerprint=attrgetter("fingerprint"),
    validate=lambda problem, decision: None,
    quality=lambda problem, decision: decision.quality,
    observe=lambda recorder: nullcontext(),
)
"""The functions on an `UpstreamProblem`: its library has checked and rated its decision."""


@dataclass(slots=True)
class Family(Generic[P, D]):
    """One planning task with several implementations, its variants.

    Attributes:
        implementation: the functions on problems and decisions, or the name of their module, which
            is imported on first use, so that listing is quick and needs no heavy libraries.
        workloads: lists the workloads for `shardbench list workloads`.
        label: returns a workload under its name in ids, which differs for files; raises
            UsageError for a workload that does not exist, before anything is built.
        brings: returns the topology that a captured workload contains, named `captured`, or None
            for other workloads; raises UsageError for a file that cannot be read.
        requires: modules that all variants need.
        preload: other modules to import once, before child processes are forked.
        benchmarks: ids of the problems that asv runs.
        studies: the family's problems in the report.
        statements: the published changes, headlines and goals that reports show beside
            measurements.
        place: the family's position in reports, lowest first.
        abilities: its abilities beyond comparing variants.
        clock: the time that verdicts compare, `cpu` or `wall`; wall time is for planners that wait,
            e.g. for a network, or divide work among cores.
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
    statements: tuple[Statement, ...] = ()
    place: int = 1000
    abilities: Abilities[P, D] = field(default_factory=Abilities)
    variants: dict[str, Variant[P, D]] = field(default_factory=dict)
    clock: ClockName = "cpu"

    @property
    def work(self) -> Implementation[P, D]:
        """The implementation; its module is imported on first use."""
        implementation: Implementation[P, D] = load(self.implementation)
        return implementation

    def work_on(self, problem: Any) -> Implementation[Any, Any]:
        """Return the functions on a problem: the family's, unless a real library builds it."""
        return _UPSTREAM_WORK if isinstance(problem, UpstreamProblem) else self.work

    @property
    def package(self) -> str:
        """The package of its implementation, which holds the family's sources."""
        work = self.implementation
        module = work.partition(":")[0] if isinstance(work, str) else work.build.__module__
        return module.rpartition(".")[0] or module

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules to import once, before child processes are forked."""
        work = self.implementation
        return (*([work.partition(":")[0]] if isinstance(work, str) else []), *self.preload)

    def decider(
        self, name: str, **declared: Unpack[Declared]
    ) -> Callable[[Callable[[P], D]], Callable[[P], D]]:
        """Register a function `problem -> decision` as a variant; the whole function is timed.

        This decorator takes the same arguments as `variant`, and raises the same errors.
        """

        def register(decide: Callable[[P], D]) -> Callable[[P], D]:
            @wraps(decide)
            def prepare(problem: P) -> Prepared[D]:
                return Prepared(run=lambda: decide(problem))

            self.variant(name, **declared)(prepare)
            return decide

        return register

    def variant(
        self, name: str, **declared: Unpack[Declared]
    ) -> Callable[[Prepare[P]], Prepare[P]]:
        """Register a function `problem -> Prepared` as a variant; only `Prepared.run` is timed.

        Raise RegistryError for a duplicate name.
        """

        def register(prepare: Prepare[P]) -> Prepare[P]:
            if name in self.variants:
                raise self._refused(f"has two variants named '{name}'")
            variant: Variant[P, Any] = Variant(name, prepare, **declared)
            documented = (prepare.__doc__ or "").strip().partition("\n")[0]
            self.variants[name] = replace(
                variant,
                summary=variant.summary or documented,
                requires=self.requires + variant.requires,
            )
            return prepare

        return register

    @property
    def reference(self) -> Variant[P, D]:
        """The default variant to compare with."""
        return next(variant for variant in self.variants.values() if variant.reference)

    def find(self, name: str) -> Variant[P, D]:
        """Return a variant by name; raise UsageError, which suggests similar names, if unknown."""
        if name not in self.variants:
            raise unknown(f"variant of family '{self.name}',", name, self.variants)
        return self.variants[name]

    def models_of(self, variant: Variant[P, D]) -> list[Variant[P, D]]:
        """Return the variants that `variant` must reproduce, by following `same_as` repeatedly."""
        return [self.variants[name] for name in self._models_of(variant.name)]

    def _models_of(self, name: str) -> list[str]:
        return models_of(name, {name: other.same_as for name, other in self.variants.items()})

    def root(self, variant: Variant[P, D]) -> Variant[P, D]:
        """Return the last of these models; variants with one root make the same decisions."""
        return [variant, *self.models_of(variant)][-1]

    def declared_statements(self) -> tuple[Statement, ...]:
        """Return the statements with the family's name, and the claims and sources of variants."""
        statements = []
        for statement in self.statements:
            variant = self.variants.get(statement.pairs[-1].after)
            published = statement.published or (variant.claim if variant else None)
            source = statement.source or (variant.source if variant else "")
            completed = replace(statement, family=self.name, published=published, source=source)
            statements.append(completed)
        return tuple(statements)

    def check(self) -> None:
        """Raise RegistryError if the declaration is inconsistent, e.g. has no reference."""
        if not self.name or set(self.name) & set("/@"):
            raise self._refused("needs a name without '/' and '@'")
        if not self.qualities:
            raise self._refused("needs at least one quality to rate decisions by")
        references = [name for name, variant in self.variants.items() if variant.reference]
        if len(references) != 1:
            raise self._refused(f"needs one reference variant, not {len(references)}")
        for name in self.variants:
            if not name or "@" in name:
                raise self._refused(f"has a variant '{name}', which needs a name without '@'")
            must = f"has a variant '{name}' that must decide the same as"
            last = [name, *self._models_of(name)][-1]
            if last not in self.variants:
                raise self._refused(f"{must} '{last}', which is no variant")
            if self.variants[last].same_as is not None:  # a cycle, which `models_of` cut
                raise self._refused(f"{must} itself")
        self._check_problems()

    def _check_problems(self) -> None:
        """Check the problems of studies and statements, and the names in statements."""
        against: dict[ProblemId, str] = {}
        for study in self.studies:
            # A cell's id does not name the variant to compare with, so their cells would collide.
            problem = self._problem(study.problem, "a study")
            other = study.against or self.reference.name
            if against.setdefault(problem, other) != other:
                raise self._refused(
                    f"studies '{problem}' against '{against[problem]}' and against '{other}'; a "
                    "problem can be studied against one variant only"
                )
        measures = {TIMES_FASTER, SECONDS, PEAK_MEMORY, *(q.name for q in self.qualities)}
        for statement in self.statements:
            for pair in (*statement.pairs, *statement.counted):
                self._problem(pair.problem, f"statement '{statement.name}'")
            names = {name for name in statement.variants if "/" not in name}
            missing = sorted(names - self.variants.keys() | {statement.measure} - measures)
            if missing:
                raise self._refused(f"has no '{missing[0]}', which '{statement.name}' names")
            if statement.use == "goal" and (statement.at_least, statement.at_most) == (None, None):
                raise self._refused(f"has a goal '{statement.name}' without at_least and at_most")

    def _refused(self, reason: str) -> RegistryError:
        return RegistryError(f"Family '{self.name}' {reason}.")

    def _problem(self, text: str, subject: str) -> ProblemId:
        try:
            return ProblemId.parse(text)
        except UsageError as error:
            raise self._refused(f"has {subject} that is malformed: {error}".rstrip(".")) from None

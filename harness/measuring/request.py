"""The request to compare a family's variants on one problem, and the job of a child process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from harness.contract import Family, Topology, WorkloadSpec
from harness.contract.registry import Registry
from harness.contract.variants import Variant
from harness.execution.worker import Stage
from harness.measuring.environment import environment
from harness.model.cell import Cell
from harness.model.errors import printable
from harness.model.ids import CellId, ProblemId
from harness.model.settings import Settings
from harness.store.keys import Key, key_of
from harness.topologies.lookup import placed_on

# The stages of a job; only `CALL` and `TOGETHER` are limited by the budget of a call.
BUILDING = "building the problem"
BOUND = "proving a bound"
SET_UP = "its set-up"
CALL = "the call"
AFTER_CALL = "what followed its call"
TOGETHER = "the calls of several processes"
COUNTING = "counting its work"

_MOST_TIMES_AS_LONG = 10


@dataclass(frozen=True, slots=True)
class Request:
    """Variants of a family to be compared on one problem.

    Attributes:
        variants: names; empty means all. The variant to compare with is always added.
        against: the variant to compare with; empty means the family's reference.
        purpose: the purpose of the comparison, in a few words for a report.
        counted: the variants that are checked, with their work counted, but not timed.
        limits: ratios by variant; the timing continues until the measured ratio is clearly above
            or below the limit.
        stored: cells of this problem from an earlier comparison. They are not measured again; new
            cells are judged as if all had been measured together.
        is_measured: whether all variants have stored cells, so that nothing is left to measure.
    """

    family: Family[Any, Any]
    workload: WorkloadSpec
    topology: Topology
    variants: tuple[str, ...] = ()
    against: str = ""
    purpose: str = ""
    counted: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    stored: tuple[Cell, ...] = ()
    is_measured: bool = False

    @property
    def given(self) -> ProblemId:
        """The problem's id with the workload as the user named it; cells have `problem` instead."""
        return ProblemId(self.workload, self.topology.name, self.topology.gpus)

    @property
    def problem(self) -> ProblemId:
        """The problem's id in cells; raises UsageError for a workload that does not exist."""
        return replace(self.given, workload=self.family.label(self.workload))

    @property
    def title(self) -> str:
        """The family and the problem as a line of text."""
        return printable(f"{self.family.name} on {self.given}")

    def cell_id(self, variant: str) -> CellId:
        """Return the id of a variant's cell."""
        return CellId(self.family.name, variant, self.problem)

    @property
    def reference(self) -> Variant[Any, Any]:
        """The variant to compare with; raises UsageError for an unknown name."""
        return self.family.find(self.against) if self.against else self.family.reference

    def names(self) -> set[str]:
        """Return the names of all variants to run; raise UsageError for an unknown name."""
        chosen = self.variants or self.family.variants
        return {self.reference.name, *(self.family.find(name).name for name in chosen)}

    def key(self, settings: Settings) -> Key:
        """Return the key of the cells that are measured here with these settings."""
        where = environment(settings.sampling.seed, self.family.package)
        return key_of(where, settings, self.reference.name)

    def build(self) -> Any:
        """Build the problem; raise UsageError if that is impossible."""
        return self.family.work.build(self.workload, self.topology)

    def job(self, settings: Settings, registry: Callable[[], Registry]) -> "Job":
        """Return the picklable form of the request; the other process calls `registry`."""
        rest = {known.name: getattr(self, known.name) for known in fields(self)}
        return Job(registry, rest.pop("family").name, rest, settings)


def request_on(family: Family[Any, Any], problem: ProblemId, *rest: Any, **named: Any) -> Request:
    """Return the request with these other fields on a family's problem.

    Raise UsageError for an unknown topology or variant.
    """
    topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
    request = Request(family, problem.workload, topology, *rest, **named)
    request.names()  # raises for an unknown variant
    return request


@dataclass(frozen=True, slots=True)
class Job:
    """The picklable form of a `Request`; it has the family's name instead of the family.

    Attributes:
        registry: returns the registry with the family; must be importable by name, for pickle.
        rest: the request's other fields, by name.
        figures: figures common to all decisions that are computed already; see `Abilities.figures`.
    """

    registry: Callable[[], Registry]
    family: str
    rest: Mapping[str, Any]
    settings: Settings
    figures: Mapping[str, float] = field(default_factory=dict)

    def request(self) -> Request:
        """Return the request, with the family from this process's registry."""
        return Request(self.registry().find(self.family), **self.rest)

    def stage(
        self, what: str, variant: str = "", processes: int = 1, lasts_s: float = 0.0
    ) -> Stage:
        """Return a stage of the work on a variant, with its limit in seconds.

        That is the budget, or the sum of the budgets of processes that share a core, and ten times
        the seconds that many calls are expected to take.
        """
        settings = self.settings
        budget = settings.budget if what in (CALL, TOGETHER) else settings.setup_budget
        return Stage(what, processes * budget + _MOST_TIMES_AS_LONG * lasts_s, variant)

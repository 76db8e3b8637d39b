"""The request for a comparison: a family's variants on one problem."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from harness.contract import Family, Prepared, Topology, WorkloadSpec
from harness.contract.registry import Registry
from harness.contract.variants import Variant
from harness.execution.bootstrap import Report
from harness.execution.messages import Stage
from harness.model.cell import Cell
from harness.model.ids import CellId, ProblemId
from harness.model.settings import Settings

BUILDING = "building the problem"
CALL = "the call"
SET_UP = "its set-up"


@dataclass(frozen=True, slots=True)
class Request:
    """Variants of a family to be compared on one problem.

    Attributes:
        variants: names; none means all. The variant that they are compared with is always added.
        against: the variant to compare with; the family's reference where it is empty.
        purpose: why, in a few words for a report.
        limits: ratios by variant; the timing goes on until each is clear of its limit.
        stored: cells of this problem that an earlier comparison has measured. They are not
            measured again, and the others are judged as if they had been measured with them.
        is_measured: whether nothing is left to measure.
    """

    family: Family[Any, Any]
    workload: WorkloadSpec
    topology: Topology
    variants: tuple[str, ...] = ()
    against: str = ""
    purpose: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    stored: tuple[Cell, ...] = ()
    is_measured: bool = False

    @property
    def given(self) -> ProblemId:
        """The problem as the user names it; cells may call its workload otherwise."""
        return ProblemId(self.workload, self.topology.name, self.topology.gpus)

    @property
    def problem(self) -> ProblemId:
        """The problem as cells call it; raises UsageError for a workload that does not exist."""
        return replace(self.given, workload=self.family.label(self.workload))

    def cell_id(self, variant: str) -> CellId:
        """Return the id of a variant's cell."""
        return CellId(self.family.name, variant, self.problem)

    @property
    def reference(self) -> Variant[Any, Any]:
        """The variant to compare with; raises UsageError where it is not known."""
        return self.family.find(self.against) if self.against else self.family.reference

    def names(self) -> set[str]:
        """Return all variants that run; raises UsageError where one is not known."""
        chosen = self.variants or self.family.variants
        return {self.reference.name, *(self.family.find(name).name for name in chosen)}

    def build(self) -> Any:
        """Build the problem; raises UsageError where it cannot be built."""
        return self.family.work.build(self.workload, self.topology)

    def job(self, settings: Settings, registry: Callable[[], Registry]) -> "Job":
        """Return the request as another process takes it; it finds the family in `registry`."""
        held = {known.name: getattr(self, known.name) for known in fields(self)}
        return Job(registry, held.pop("family").name, held, settings)


@dataclass(frozen=True, slots=True)
class Job:
    """A request for another process, which finds the family by its name in a registry.

    Attributes:
        registry: importable by name.
        rest: the request's other fields.
        figures: figures that hold for every decision, worked out already.
    """

    registry: Callable[[], Registry]
    family: str
    rest: Mapping[str, Any]
    settings: Settings
    figures: Mapping[str, float] = field(default_factory=dict)

    def request(self) -> Request:
        """Return the request, with the family of this process."""
        return Request(self.registry().find(self.family), **self.rest)

    def stage(self, what: str, variant: str = "") -> Stage:
        """Return a stage of the work for a variant, which a call's or a set-up's budget limits."""
        settings = self.settings
        return Stage(what, settings.budget if what == CALL else settings.setup_budget, variant)

    def prepare(
        self, request: Request, problem: Any, variants: Iterable[str], report: Report
    ) -> dict[str, Prepared[Any]]:
        """Set variants up, to be closed once the parent has the result."""
        prepared = {}
        for name in variants:
            report.send(self.stage(SET_UP, name))
            prepared[name] = request.family.find(name).prepared(problem)
            report.closing.append(prepared[name].close)
        return prepared

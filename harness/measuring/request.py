"""The request for a comparison: a family's variants on one problem."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.contract import Family, Topology, WorkloadSpec
from harness.contract.registry import Registry
from harness.contract.variants import Variant
from harness.measuring.jobs import Job
from harness.model.cell import Cell
from harness.model.ids import CellId, ProblemId
from harness.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Request:
    """Variants of a family to be compared on one problem.

    Attributes:
        variants: names; none means all. The one that they are compared with is always added.
        against: the variant to compare with; the family's reference where it is empty.
        purpose: why, in a few words for a report.
        limits: ratios by variant that the timing goes on for until each is clear of its limit.
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
        """The problem as it is asked for; cells may call its workload otherwise."""
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

    def job(self, settings: Settings, registry: Callable[[], Registry]) -> Job:
        """Return what a child process is given; it finds the family in `registry`."""
        budgets = settings.budget, settings.setup_budget
        return Job(
            registry,
            self.family.name,
            self.workload,
            self.topology,
            *budgets,
            against=self.reference.name,
        )

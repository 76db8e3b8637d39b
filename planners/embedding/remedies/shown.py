"""A remedy with the plan that shows it, before that plan is improved."""

from dataclasses import dataclass, replace

from harness.contract import Remedy
from planners.embedding.decision import Plan
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.searching import Flat
from planners.embedding.search.outcome import Deadline, Found


@dataclass(frozen=True, slots=True)
class Shown:
    """The amounts of a Remedy; `found` is a plan that fits in `flat`, the changed `problem`."""

    name: str
    unit: str
    now: float
    sufficient: float
    proven: float
    size: float
    changes: tuple[str, ...]
    problem: EmbeddingProblem
    flat: Flat
    found: Found

    def remedy(self, deadline: Deadline) -> Remedy[EmbeddingProblem, Plan]:
        """Return the remedy, with the best plan found by the deadline."""
        best = self.flat.best_from(self.found, deadline)
        return Remedy(
            name=self.name,
            unit=self.unit,
            now=self.now,
            sufficient=self.sufficient,
            proven=self.proven,
            size=self.size,
            changes=self.changes,
            rating=best.rating,
            problem=replace(self.problem, changes=self.changes),
            decision=self.flat.plan(best),
        )

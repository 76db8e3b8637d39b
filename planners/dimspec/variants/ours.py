"""Variants that go beyond what was published."""

from harness.contract import Prepared
from planners.dimspec.answers import Answers, prepare
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.path_cache import PathCache
from planners.dimspec.conversion.specs import SharedDimSpec
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import DimSpecProblem


@FAMILY.variant("path-cache", source="shardbench", same_as="eager-dict")
def path_cache(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A cache of paths with a complete key, and read, over one shared dictionary."""

    def search() -> PathCache:
        SharedDimSpec.forget()
        return PathCache()

    return prepare(problem, search)


@FAMILY.variant("interned", source="shardbench", same_as="eager-dict")
def interned(problem: DimSpecProblem) -> "Prepared[Answers]":
    """Layouts as numbers: steps and nearest steps from tables, specs and paths shared."""
    return prepare(problem, InternedSearch)


@FAMILY.variant("optimal", source="Dijkstra 1959, over ColossalAI's costs of a step")
def optimal(problem: DimSpecProblem) -> "Prepared[Answers]":
    """The cheapest conversion by the true sum of its steps, from the same tables."""
    return prepare(problem, CheapestSearch)

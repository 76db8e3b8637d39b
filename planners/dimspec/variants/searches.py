"""ColossalAI's search before #5446, as merged and as intended, and searches of our own."""

from harness.contract import Claim, Prepared
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.search import GreedySearch, PathCache
from planners.dimspec.conversion.specs import EagerDimSpec, LazyDimSpec, SharedDimSpec
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import Answers, DimSpecProblem, prepare

_PUBLISHED = "hpcaitech/ColossalAI#5446"
_ISSUE = "hpcaitech/ColossalAI#5436"
CLAIM = Claim(56.79, 31.93, "s", "strategies of ResNet-50, as published")


@FAMILY.variant("eager-dict", source=f"before {_PUBLISHED}", reference=True)
def eager_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A dictionary of differences for every DimSpec, built when it is made, its strings copied."""
    return prepare(problem, lambda: GreedySearch(EagerDimSpec))


@FAMILY.variant("lazy-dict", source=_PUBLISHED, same_as="eager-dict", claim=CLAIM)
def lazy_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """Still a dictionary for every DimSpec, built when it is first used: the change as merged."""
    return prepare(problem, lambda: GreedySearch(LazyDimSpec))


@FAMILY.variant("shared-dict", source=f"what {_ISSUE} asked for", same_as="eager-dict")
def shared_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """One dictionary for the class, built once: the change as intended."""
    return prepare(problem, lambda: GreedySearch(SharedDimSpec.forgotten()))


@FAMILY.variant("path-cache", source="shardbench", same_as="eager-dict")
def path_cache(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A cache of paths that is read and has a complete key, over one shared dictionary."""
    return prepare(problem, PathCache)


@FAMILY.variant("interned", source="shardbench", same_as="eager-dict")
def interned(problem: DimSpecProblem) -> "Prepared[Answers]":
    """Layouts as numbers: steps and nearest steps from tables, specs and paths shared."""
    return prepare(problem, InternedSearch)


@FAMILY.variant("optimal", source="Dijkstra 1959, over ColossalAI's costs of a step")
def optimal(problem: DimSpecProblem) -> "Prepared[Answers]":
    """The cheapest conversion by the true sum of its steps, from the same tables."""
    return prepare(problem, CheapestSearch)

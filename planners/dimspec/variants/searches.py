"""ColossalAI's search as it was, as it became and as it was meant to be, and ours."""

from harness.contract import Claim, Prepared
from planners.dimspec.answers import Answers, prepare
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.search import GreedySearch, PathCache
from planners.dimspec.conversion.specs import EagerDimSpec, LazyDimSpec, SharedDimSpec
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import DimSpecProblem

_PUBLISHED = "hpcaitech/ColossalAI#5446"
_ISSUE = "hpcaitech/ColossalAI#5436"
CLAIM = Claim(56.79, 31.93, "s", "strategies of ResNet-50, as published")


@FAMILY.variant("eager-dict", source=f"before {_PUBLISHED}", reference=True)
def eager_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A dictionary of differences for every DimSpec, built when it is made, its strings copied."""
    return prepare(problem, lambda: GreedySearch(EagerDimSpec))


@FAMILY.variant("lazy-dict", source=_PUBLISHED, same_as="eager-dict", claim=CLAIM)
def lazy_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A dictionary for every DimSpec still, built when it is first asked: the change as merged."""
    return prepare(problem, lambda: GreedySearch(LazyDimSpec))


@FAMILY.variant("shared-dict", source=f"what {_ISSUE} asked for", same_as="eager-dict")
def shared_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """One dictionary for the class, built once: what the change meant."""
    return prepare(problem, lambda: GreedySearch(SharedDimSpec.forgotten()))


@FAMILY.variant("path-cache", source="shardbench", same_as="eager-dict")
def path_cache(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A cache of paths with a complete key, and read, over one shared dictionary."""
    return prepare(problem, PathCache)


@FAMILY.variant("interned", source="shardbench", same_as="eager-dict")
def interned(problem: DimSpecProblem) -> "Prepared[Answers]":
    """Layouts as numbers: steps and nearest steps from tables, specs and paths shared."""
    return prepare(problem, InternedSearch)


@FAMILY.variant("optimal", source="Dijkstra 1959, over ColossalAI's costs of a step")
def optimal(problem: DimSpecProblem) -> "Prepared[Answers]":
    """The cheapest conversion by the true sum of its steps, from the same tables."""
    return prepare(problem, CheapestSearch)

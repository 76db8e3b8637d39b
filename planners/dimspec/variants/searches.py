"""Variants: ColossalAI's search before #5446, as merged, as intended, and our searches."""

from harness.contract import Claim, Prepared
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.search import GreedySearch, PathCache
from planners.dimspec.conversion.specs import EagerDimSpec, LazyDimSpec, SharedDimSpec
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import Answers, StreamProblem, prepare

_PUBLISHED = "hpcaitech/ColossalAI#5446"
_ISSUE = "hpcaitech/ColossalAI#5436"
CLAIM = Claim(
    56.79, 31.93, "s", "ColossalAI's example for ResNet, wall time of the strategy constructor"
)


@FAMILY.variant("eager-dict", source=f"before {_PUBLISHED}", reference=True)
def eager_dict(problem: StreamProblem) -> "Prepared[Answers]":
    """Build a dictionary of differences, with copied strings, in every DimSpec's constructor."""
    return prepare(problem, lambda: GreedySearch(EagerDimSpec))


@FAMILY.variant("lazy-dict", source=_PUBLISHED, same_as="eager-dict", claim=CLAIM)
def lazy_dict(problem: StreamProblem) -> "Prepared[Answers]":
    """Build the dictionary of every DimSpec on its first use: #5446 as merged."""
    return prepare(problem, lambda: GreedySearch(LazyDimSpec))


@FAMILY.variant("shared-dict", source=f"what {_ISSUE} asked for", same_as="eager-dict")
def shared_dict(problem: StreamProblem) -> "Prepared[Answers]":
    """Build one dictionary for the class: #5446 as intended."""
    return prepare(problem, lambda: GreedySearch(SharedDimSpec.forgotten()))


@FAMILY.variant("path-cache", source="shardbench", same_as="eager-dict")
def path_cache(problem: StreamProblem) -> "Prepared[Answers]":
    """As shared-dict, and cache conversions by all inputs that determine them."""
    return prepare(problem, PathCache)


@FAMILY.variant("interned", source="shardbench", same_as="eager-dict")
def interned(problem: StreamProblem) -> "Prepared[Answers]":
    """Layouts are numbers, steps are looked up in tables, and specs and paths are reused."""
    return prepare(problem, InternedSearch)


@FAMILY.variant("optimal", source="Dijkstra 1959, over ColossalAI's costs of a step")
def optimal(problem: StreamProblem) -> "Prepared[Answers]":
    """Find the conversion with the least sum of step costs, by Dijkstra's algorithm."""
    return prepare(problem, CheapestSearch)

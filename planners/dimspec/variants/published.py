"""ColossalAI's search as it was, as it became, and as it was meant to be."""

from harness.contract import Claim, Prepared
from planners.dimspec.answers import Answers, prepare
from planners.dimspec.conversion.search import GreedySearch
from planners.dimspec.conversion.specs import EagerDimSpec, LazyDimSpec, SharedDimSpec
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import DimSpecProblem

_PUBLISHED = "hpcaitech/ColossalAI#5446"
_ISSUE = "hpcaitech/ColossalAI#5436"


@FAMILY.variant("eager-dict", source=f"before {_PUBLISHED}", reference=True)
def eager_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A dictionary of differences for every DimSpec, built when it is made, its strings copied."""
    return prepare(problem, lambda: GreedySearch(EagerDimSpec))


@FAMILY.variant(
    "lazy-dict",
    source=_PUBLISHED,
    same_as="eager-dict",
    claim=Claim(56.79, 31.93, "s", "strategies of ResNet-50, as published"),
)
def lazy_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """A dictionary for every DimSpec still, built when it is first asked: the change as merged."""
    return prepare(problem, lambda: GreedySearch(LazyDimSpec))


@FAMILY.variant("shared-dict", source=f"what {_ISSUE} asked for", same_as="eager-dict")
def shared_dict(problem: DimSpecProblem) -> "Prepared[Answers]":
    """One dictionary for the class, built once: what the change meant."""

    def search() -> GreedySearch:
        SharedDimSpec.forget()
        return GreedySearch(SharedDimSpec)

    return prepare(problem, search)

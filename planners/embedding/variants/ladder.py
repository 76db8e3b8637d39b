"""The copying ladder: how torchrec's planner stopped copying, one published step at a time.

Every rung decides exactly the same. Up to torchrec 1.3.0 the partitioner also copied the whole
topology for each proposal; 1.4.0 copies only the devices' figures, which is the last rung. Since
1.9.0 devices and estimates copy themselves field by field, which makes each of these copies cheaper
on every rung than it was in the releases that it stands for.
"""

from typing import TYPE_CHECKING

from harness.contract import Claim, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem

_CONDITIONS = "an ads model with more than 1000 proposals, whole planning time"
_DEEPCOPY_REFACTOR = "meta-pytorch/torchrec#665"


def _prepare(problem: "EmbeddingProblem", **copies: bool) -> "Prepared[Plan]":
    from planners.embedding.variants.copies import prepare

    return prepare(problem, **copies)


@FAMILY.variant("double-deepcopy", reference=True, source=_DEEPCOPY_REFACTOR)
def double_deepcopy(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Each proposal copied twice, tensors and modules included"""
    return _prepare(problem, in_proposer=True, in_partitioner=True, whole_options=True)


@FAMILY.variant(
    "single-deepcopy",
    same_as="double-deepcopy",
    source=_DEEPCOPY_REFACTOR,
    claim=Claim(before=20, after=10, unit="min", conditions=_CONDITIONS),
)
def single_deepcopy(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Each proposal copied once, tensors and modules included"""
    return _prepare(problem, in_partitioner=True, whole_options=True)


@FAMILY.variant(
    "custom-deepcopy",
    same_as="single-deepcopy",
    source=_DEEPCOPY_REFACTOR,
    claim=Claim(before=10, after=2.5, unit="min", conditions=_CONDITIONS),
)
def custom_deepcopy(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Each proposal copied once, tensors and modules shared and read-only"""
    return _prepare(problem, in_partitioner=True)


@FAMILY.variant("copy-if-better", same_as="custom-deepcopy", source="meta-pytorch/torchrec#1143")
def copy_if_better(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """A plan copied only when it is the best so far"""
    return _prepare(problem)


@FAMILY.variant("upstream", same_as="copy-if-better", source="torchrec 1.9.2")
def upstream(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchRec as installed, with its greedy proposer"""
    return _prepare(problem, topology=False)

"""The copying ladder: torchrec's planner with its early copies, without them, and faster.

All variants find the same plan. Those before `cheap-device-copies` copy devices as releases up to
1.8.0 do. Those after `upstream` are changes of ours, and each includes the changes before it.
"""

from functools import partial
from typing import TYPE_CHECKING

from harness.contract import Claim, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem

_CONDITIONS = "an ads model with more than 1000 proposals, whole planning time"
_DEEPCOPY_REFACTOR = "meta-pytorch/torchrec#665"


def _copying(problem: "EmbeddingProblem", **copies: bool) -> "Prepared[Plan]":
    from planners.embedding.variants.rungs import copying

    return copying(problem, **copies)


def _improved(problem: "EmbeddingProblem", last: str) -> "Prepared[Plan]":
    from planners.embedding.variants.rungs import improved

    return improved(problem, last)


@FAMILY.variant("double-deepcopy", reference=True, source=_DEEPCOPY_REFACTOR)
def double_deepcopy(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Each proposal copied twice, tensors and modules included"""
    return _copying(problem, in_proposer=True, in_partitioner=True, whole_options=True)


@FAMILY.variant(
    "single-deepcopy",
    same_as="double-deepcopy",
    source=_DEEPCOPY_REFACTOR,
    claim=Claim(before=20, after=10, unit="min", conditions=_CONDITIONS),
)
def single_deepcopy(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Each proposal copied once, tensors and modules included"""
    return _copying(problem, in_partitioner=True, whole_options=True)


@FAMILY.variant(
    "custom-deepcopy",
    same_as="single-deepcopy",
    source=_DEEPCOPY_REFACTOR,
    claim=Claim(before=10, after=2.5, unit="min", conditions=_CONDITIONS),
)
def custom_deepcopy(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Each proposal copied once, tensors and modules shared and read-only"""
    return _copying(problem, in_partitioner=True)


@FAMILY.variant("copy-if-better", same_as="custom-deepcopy", source="meta-pytorch/torchrec#1143")
def copy_if_better(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """A plan copied only when it is the best so far"""
    return _copying(problem)


@FAMILY.variant("no-topology-copy", same_as="copy-if-better", source="torchrec 1.8.0")
def no_topology_copy(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The topology's figures taken over for each proposal, not copied"""
    return _copying(problem, topology=False)


@FAMILY.variant(
    "cheap-device-copies",
    same_as="no-topology-copy",
    source="meta-pytorch/torchrec#4496",
    claim=Claim(before=19.80, after=11.03, unit="s", conditions="64 tables on 16 ranks"),
)
def cheap_device_copies(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Devices copied field by field, as torchrec does since 1.9.0"""
    return _improved(problem, "cheap-device-copies")


@FAMILY.variant("upstream", same_as="cheap-device-copies", source="torchrec 1.9.2")
def upstream(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchRec as installed, with its greedy proposer"""
    from torchrec.distributed.planner.proposers import GreedyProposer

    from planners.embedding.decision import prepare

    return prepare(problem, proposer=GreedyProposer)


_IMPROVEMENTS = {
    "remembered-annotations": "Annotations of an estimator looked up once, not for every shard",
    "no-space-copy": "The search space stored as it is, not as a deep copy",
    "distinct-shards": "Estimators asked about one shard of each size",
    "shared-device-figures": "Hosts tried on new devices that share the old ones' figures",
    "remembered-hashes": "Options hashed once, not for every proposal",
    "remembered-totals": "Storage and perf of an option's shards added up once",
}

for _name, _before in zip(_IMPROVEMENTS, ["upstream", *_IMPROVEMENTS], strict=False):
    FAMILY.variant(_name, summary=_IMPROVEMENTS[_name], same_as=_before, source="shardbench")(
        partial(_improved, last=_name)
    )

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

_SUMMARIES = {
    "double-deepcopy": "Each proposal copied twice, tensors and modules included",
    "single-deepcopy": "Each proposal copied once, tensors and modules included",
    "custom-deepcopy": "Each proposal copied once, tensors and modules shared and read-only",
    "copy-if-better": "A plan copied only when it is the best so far",
    "no-topology-copy": "The topology's figures taken over for each proposal, not copied",
    "cheap-device-copies": "Devices copied field by field, as torchrec does since 1.9.0",
    "upstream": "TorchRec as installed, with its greedy proposer",
    "remembered-annotations": "Annotations of an estimator looked up once, not for every shard",
    "no-space-copy": "The search space stored as it is, not as a deep copy",
    "distinct-shards": "Estimators asked about one shard of each size",
    "shared-device-figures": "Hosts tried on new devices that share the old ones' figures",
    "remembered-hashes": "Options hashed once, not for every proposal",
    "remembered-totals": "Storage and perf of an option's shards added up once",
}
_SOURCES = {  # of all others: shardbench
    "double-deepcopy": _DEEPCOPY_REFACTOR,
    "single-deepcopy": _DEEPCOPY_REFACTOR,
    "custom-deepcopy": _DEEPCOPY_REFACTOR,
    "copy-if-better": "meta-pytorch/torchrec#1143",
    "no-topology-copy": "torchrec 1.8.0",
    "cheap-device-copies": "meta-pytorch/torchrec#4496",
    "upstream": "torchrec 1.9.2",
}
_CLAIMS = {
    "single-deepcopy": Claim(before=20, after=10, unit="min", conditions=_CONDITIONS),
    "custom-deepcopy": Claim(before=10, after=2.5, unit="min", conditions=_CONDITIONS),
    "cheap-device-copies": Claim(
        before=19.80, after=11.03, unit="s", conditions="64 tables on 16 ranks"
    ),
}


def _prepared(problem: "EmbeddingProblem", name: str) -> "Prepared[Plan]":
    """Prepare a rung; imports torchrec only when it is called."""
    from planners.embedding.variants.rungs import rung

    return rung(problem, name)


for _name, _before in zip(_SUMMARIES, [None, *_SUMMARIES], strict=False):
    FAMILY.variant(
        _name,
        summary=_SUMMARIES[_name],
        same_as=_before,
        reference=_before is None,
        source=_SOURCES.get(_name, "shardbench"),
        claim=_CLAIMS.get(_name),
    )(partial(_prepared, name=_name))

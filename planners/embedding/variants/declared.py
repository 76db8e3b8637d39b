"""The embedding family's variants: the copying ladder, other proposers, and compiled planners.

All functions import torchrec only when a variant is prepared.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.contract import Claim, NotApplicable, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem

Prepare = Callable[["EmbeddingProblem"], "Prepared[Plan]"]


def _rung(problem: "EmbeddingProblem", name: str) -> "Prepared[Plan]":
    from planners.embedding.variants.rungs import rung

    return rung(problem, name)


def _proposer(name: str, **arguments: Any) -> dict[str, Callable[[], Any]]:
    """Return the component `proposer`, torchrec's or ours of this name; none for no name."""
    from torchrec.distributed.planner import proposers

    from planners.embedding.same_plan import bin_proposer

    module = bin_proposer if hasattr(bin_proposer, name) else proposers
    return {"proposer": partial(getattr(module, name), **arguments)} if name else {}


def _proposing(problem: "EmbeddingProblem", name: str = "", **arguments: Any) -> "Prepared[Plan]":
    """Prepare torchrec's planner with this proposer, or with its four."""
    from planners.embedding.decision import prepare

    return prepare(problem, **_proposer(name, **arguments))


def _compiled(problem: "EmbeddingProblem", name: str = "") -> "Prepared[Plan]":
    """Prepare the drop-in planner with this proposer, or with torchrec's four."""
    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search import warm_up

    warm_up.ready(warm_up.SAME_PLAN)
    return prepare(problem, Planner, **_proposer(name))


def _captured(problem: "EmbeddingProblem", compiled: bool) -> "Prepared[Plan]":
    """Prepare the live planner, or the drop-in planner with all its settings."""
    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner

    if problem.live is None:
        raise NotApplicable("The problem was not captured, or is placed on other machines.")
    planner = problem.live.planner
    if planner.obstacle:
        raise NotApplicable(f"The live planner cannot be made again: {planner.obstacle}.")
    return prepare(
        problem,
        planner.make(Planner if compiled else None),
        proposer=lambda: [proposer.make() for proposer in planner.proposers],
        partitioner=planner.partitioner.make,
        performance_model=lambda: planner.perf_model.make(topology=problem.topology),
    )


def _load_best_plan() -> None:
    """Load what the search for the best plan runs on, which is no work of a measured call."""
    from planners.embedding.best_plan import packing
    from planners.embedding.search import warm_up

    warm_up.ready(warm_up.BEST_PLAN)
    packing.is_installed()  # imports OR-tools, and pandas with it


def _certified(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner

    _load_best_plan()
    near: dict[str, Any] = {}
    if problem.moving is not None:
        near = {"previous": problem.moving.previous, "move_budget": problem.moving.gib}
    planner = partial(
        Planner,
        mode="best-plan",
        search_seconds=problem.search_seconds,
        machine=problem.machine or "none",
        remedy_seconds=0,  # they are searched for by the harness
        **near,
    )
    return prepare(problem, planner)


_DEEPCOPIES, _TORCHREC = "meta-pytorch/torchrec#665", "torchrec 1.9.2"
_NUMBA, _SOLVER = ("numba",), ("numba", "highspy")
_ADS_MODEL = "an ads model with more than 1000 proposals, whole planning time"
_CLAIMS = {
    "single-deepcopy": Claim(before=20, after=10, unit="min", conditions=_ADS_MODEL),
    "custom-deepcopy": Claim(before=10, after=2.5, unit="min", conditions=_ADS_MODEL),
    "cheap-device-copies": Claim(
        before=19.80, after=11.03, unit="s", conditions="64 tables on 16 ranks"
    ),
    "dp-torchrec": Claim(
        before=904.90,
        after=11.86,
        unit="s",
        conditions="the script of #2282, more than 500 tables on 8 GPUs",
    ),
}

# The copying ladder: torchrec's planner with its early copies, without them, and faster. All find
# the same plan. Those before `cheap-device-copies` copy devices as releases up to 1.8.0 do. Those
# after `upstream` are changes of ours, and each includes the changes before it.
_RUNGS = {
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
_SOURCES = {  # of all other rungs: shardbench
    **dict.fromkeys(("double-deepcopy", "single-deepcopy", "custom-deepcopy"), _DEEPCOPIES),
    "copy-if-better": "meta-pytorch/torchrec#1143",
    "no-topology-copy": "torchrec 1.8.0",
    "cheap-device-copies": "meta-pytorch/torchrec#4496",
    "upstream": _TORCHREC,
}
for _name, _before in zip(_RUNGS, [None, *_RUNGS], strict=False):
    FAMILY.variant(
        _name,
        summary=_RUNGS[_name],
        same_as=_before,
        reference=_before is None,
        source=_SOURCES.get(_name, "shardbench"),
        claim=_CLAIMS.get(_name),
    )(partial(_rung, name=_name))

# fmt: off
_VARIANTS: tuple[tuple[str, str, Prepare, dict[str, Any]], ...] = (
    ("uniform", "One sharding type for all tables (UniformProposer)",
     partial(_proposing, name="UniformProposer"), {"source": _TORCHREC}),
    ("greedy-sum", "GreedyProposer that orders options by the sum over shards",
     partial(_proposing, name="GreedyProposer", use_depth=False), {"source": _TORCHREC}),
    ("default", "The four proposers that torchrec uses when none is named",
     _proposing, {"source": _TORCHREC}),
    ("default-compiled",
     "The four proposers that torchrec uses when none is named, partitioner included, compiled",
     _compiled, {"same_as": "default", "requires": _NUMBA}),
    ("dp-torchrec", "Dynamic programming over total HBM (DynamicProgrammingProposer)",
     partial(_proposing, name="DynamicProgrammingProposer"),
     {"source": "meta-pytorch/torchrec#2286"}),
    ("dp-tzrec", "Dynamic programming over total HBM, or DDR without GPUs, in plain Python",
     partial(_proposing, name="BinProposer"), {"source": "alibaba/TorchEasyRec@54cac31"}),
    ("dp-compiled", "TorchEasyRec's dynamic programming, partitioner included, compiled",
     partial(_compiled, name="BinProposer"), {"same_as": "dp-tzrec", "requires": _NUMBA}),
    ("dp-tzrec-2d", "Dynamic programming over total HBM and total DDR, in NumPy",
     partial(_proposing, name="BinProposer2D"), {"source": "alibaba/TorchEasyRec@aff7c2b6"}),
    ("dp-compiled-2d",
     "TorchEasyRec's dynamic programming in two dimensions, partitioner included, compiled",
     partial(_compiled, name="BinProposer2D"), {"same_as": "dp-tzrec-2d", "requires": _NUMBA}),
    ("as-captured",
     "The live planner of a captured problem, with its own proposers and partitioner",
     partial(_captured, compiled=False), {"source": "the captured file"}),
    ("captured-compiled", "The live planner of a captured problem, with its search compiled",
     partial(_captured, compiled=True), {"same_as": "as-captured", "requires": _NUMBA}),
    ("compiled", "TorchRec's planner with its greedy proposer and its partitioner compiled",
     partial(_compiled, name="GreedyProposer"), {"same_as": "upstream", "requires": _NUMBA}),
    ("certified", "Linear programme and local search, down to a proven gap",
     _certified, {"requires": _SOLVER}),
)
# fmt: on
for _name, _summary, _prepare, _declared in _VARIANTS:
    _declared = {"source": "shardbench", "claim": _CLAIMS.get(_name), **_declared}
    FAMILY.variant(_name, summary=_summary, **_declared)(_prepare)

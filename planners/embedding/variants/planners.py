"""Variants with other proposers, which find other plans, and compiled planners."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.contract import Claim, NotApplicable, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


Prepare = Callable[["EmbeddingProblem"], "Prepared[Plan]"]

# All functions import torchrec only when a variant is prepared.


def _proposer(name: str, **arguments: Any) -> dict[str, Callable[[], Any]]:
    """Return the component `proposer`, torchrec's or ours of this name; none for no name."""
    from torchrec.distributed.planner import proposers

    from planners.embedding.same_plan import bin_proposer

    module = bin_proposer if hasattr(bin_proposer, name) else proposers
    return {"proposer": partial(getattr(module, name), **arguments)} if name else {}


def _proposing(name: str, **arguments: Any) -> Prepare:
    """Return a variant's function: torchrec's planner with this proposer, or with its four."""

    def prepared(problem: "EmbeddingProblem") -> "Prepared[Plan]":
        from planners.embedding.decision import prepare

        return prepare(problem, **_proposer(name, **arguments))

    return prepared


def _compiled(name: str) -> Prepare:
    """Return a variant's function: the drop-in planner with this proposer, or torchrec's four."""

    def prepared(problem: "EmbeddingProblem") -> "Prepared[Plan]":
        from planners.embedding.decision import prepare
        from planners.embedding.drop_in.planner import Planner
        from planners.embedding.search import warm_up

        warm_up.ready(warm_up.SAME_PLAN)
        return prepare(problem, Planner, **_proposer(name))

    return prepared


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


def _certified(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search import warm_up

    warm_up.ready(warm_up.BEST_PLAN)
    near: dict[str, Any] = {}
    if problem.moving is not None:
        near = {"previous": problem.moving.previous, "move_budget": problem.moving.gib}
    planner = partial(
        Planner,
        mode="best-plan",
        search_seconds=problem.search_seconds,
        remedy_seconds=0,  # they are searched for by the harness
        **near,
    )
    return prepare(problem, planner)


def _calibrated(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Prepare the search by calibrated estimates, for a plan that is rated by torchrec's own."""
    from planners.embedding.decision import Plan, prepare
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.estimates.calibration import Calibration
    from planners.embedding.estimates.estimator import calibrated_estimators
    from planners.embedding.plan_files.table import PlanTable
    from planners.embedding.quality import arrays
    from planners.embedding.search import warm_up
    from planners.embedding.search.enumeration import DistinctShardEnumerator
    from planners.embedding.search.outcome import Found, placed

    if not problem.coefficients:
        raise NotApplicable(
            "The topology has no coefficients; `shardbench calibrate` writes one with coefficients."
        )
    warm_up.ready(warm_up.BEST_PLAN)
    topology, calibration = problem.topology, Calibration(problem.coefficients)
    prepared = prepare(
        problem,
        partial(Planner, mode="best-plan", search_seconds=problem.search_seconds),
        enumerator=lambda: problem.enumerator(
            DistinctShardEnumerator,
            calibrated_estimators(calibration, topology, problem.constraints),
        ),
    )

    def plan() -> Plan:
        made = prepared.run()
        assert isinstance(made, Plan)
        space, _ = arrays(problem)
        chosen = PlanTable.of_options(made.options, topology.world_size).chosen(space)
        assert chosen is not None  # both have the problem's options
        return Plan(tuple(placed(space, Found(*chosen, rating=0.0, proposals=1, partitions=1))))

    return Prepared(run=plan)


_TORCHREC = "torchrec 1.9.2"
_NUMBA, _SOLVER = ("numba",), ("numba", "highspy")
_CLAIM = Claim(
    before=904.90,
    after=11.86,
    unit="s",
    conditions="the script of #2282, more than 500 tables on 8 GPUs",
)

# fmt: off
_VARIANTS: tuple[tuple[str, str, Prepare, dict[str, Any]], ...] = (
    ("uniform", "One sharding type for all tables (UniformProposer)",
     _proposing("UniformProposer"), {"source": _TORCHREC}),
    ("greedy-sum", "GreedyProposer that orders options by the sum over shards",
     _proposing("GreedyProposer", use_depth=False), {"source": _TORCHREC}),
    ("default", "The four proposers that torchrec uses when none is named",
     _proposing(""), {"source": _TORCHREC}),
    ("default-compiled",
     "The four proposers that torchrec uses when none is named, partitioner included, compiled",
     _compiled(""), {"same_as": "default", "requires": _NUMBA}),
    ("dp-torchrec", "Dynamic programming over total HBM (DynamicProgrammingProposer)",
     _proposing("DynamicProgrammingProposer"),
     {"source": "meta-pytorch/torchrec#2286", "claim": _CLAIM}),
    ("dp-tzrec", "Dynamic programming over total HBM, or DDR without GPUs, in plain Python",
     _proposing("BinProposer"), {"source": "alibaba/TorchEasyRec@54cac31"}),
    ("dp-compiled", "TorchEasyRec's dynamic programming, partitioner included, compiled",
     _compiled("BinProposer"), {"same_as": "dp-tzrec", "requires": _NUMBA}),
    ("dp-tzrec-2d", "Dynamic programming over total HBM and total DDR, in NumPy",
     _proposing("BinProposer2D"), {"source": "alibaba/TorchEasyRec@aff7c2b6"}),
    ("dp-compiled-2d",
     "TorchEasyRec's dynamic programming in two dimensions, partitioner included, compiled",
     _compiled("BinProposer2D"), {"same_as": "dp-tzrec-2d", "requires": _NUMBA}),
    ("as-captured",
     "The live planner of a captured problem, with its own proposers and partitioner",
     partial(_captured, compiled=False), {"source": "the captured file"}),
    ("captured-compiled", "The live planner of a captured problem, with its search compiled",
     partial(_captured, compiled=True), {"same_as": "as-captured", "requires": _NUMBA}),
    ("compiled", "TorchRec's planner with its greedy proposer and its partitioner compiled",
     _compiled("GreedyProposer"), {"same_as": "upstream", "requires": _NUMBA}),
    ("certified", "Linear programme and local search, down to a proven gap",
     _certified, {"requires": _SOLVER}),
    ("calibrated", "As certified, by the estimate of a calibrated machine",
     _calibrated, {"requires": _SOLVER}),
)
# fmt: on
for _name, _summary, _prepare, _declared in _VARIANTS:
    FAMILY.variant(_name, summary=_summary, **{"source": "shardbench", **_declared})(_prepare)

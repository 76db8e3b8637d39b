"""A provider of planners for torchrec's planning API and its dry run."""

from typing import Any

import torchrec
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from typing_extensions import override

from planners.embedding.drop_in.planner import Planner

try:
    from torchrec.distributed.planner.provider import DefaultPlannerProvider
except ModuleNotFoundError:
    raise ImportError(
        "PlannerProvider needs torchrec 1.9.0 or later, whose planning API has providers; torchrec "
        f"{getattr(torchrec, '__version__', '')} is installed."
    ) from None


class PlannerProvider(DefaultPlannerProvider):
    """Builds a `Planner` where torchrec's default provider builds an EmbeddingShardingPlanner.

    Pass it to torchrec's executor, as in `DryRunOrchestrator(DefaultPlannerExecutor(
    PlannerProvider()))`. The planner has all parts that torchrec's provider builds for a request:
    topology, reservation, estimators, proposers, partitioner, perf model, statistics, limits.

    Args:
        **planner: keyword arguments that only `Planner` has, such as `mode` and `cache`.

    Raises NotImplementedError, as torchrec does, for variants that torchrec cannot build.
    """

    def __init__(self, **planner: Any) -> None:
        self._arguments = planner

    @override
    def build_planner(self, sku: str, **inputs: Any) -> Planner:
        """Return the planner for a request's variant."""
        theirs = super().build_planner(sku, **inputs)
        planner = Planner(
            topology=theirs._topology,
            batch_size=theirs._batch_size,
            storage_reservation=theirs._storage_reservation,
            proposer=theirs._proposers,
            partitioner=theirs._partitioner,
            performance_model=theirs._perf_model,
            stats=theirs._stats,
            constraints=theirs._constraints,
            debug=theirs._debug,
            callbacks=theirs._callbacks,
            timeout_seconds=theirs._timeout_seconds,
            **self._arguments,
        )
        if type(theirs._enumerator) is EmbeddingEnumerator:
            planner._enumerator._estimators = theirs._enumerator._estimators
        else:
            planner._enumerator = theirs._enumerator
        return planner

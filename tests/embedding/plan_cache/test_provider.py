"""TorchRec's own dry run plans with our planner, and loads what was planned before."""

import pytest

pytest.importorskip("torchrec.distributed.planner.provider")

from cached_plans import files, model, rows_of
from compared import nameless
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.dry_run import DryRunOrchestrator, DryRunRequest
from torchrec.distributed.planner.executor import DefaultPlannerExecutor
from torchrec.distributed.planner.provider import (
    DefaultPlannerProvider,
    PlannerProvider as Protocol,
)
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerConfig,
    PlannerSessionContext,
    ProposerConfig,
    StorageReservationPolicy,
    TrainingFramework,
)

from planners.embedding.drop_in.planner import Planner
from planners.embedding.drop_in.provider import PlannerProvider
from planners.embedding.plan_cache.cache import PlanCache

CONFIGS = {
    "default": PlannerConfig(),
    "all else": PlannerConfig(
        pipeline_type="train_prefetch_sparse_dist",
        proposer_config=ProposerConfig(kind="greedy"),
        timeout_seconds=60,
        partitioner_type="memory_balanced",
        storage_reservation_policy=StorageReservationPolicy.FIXED_PERCENTAGE,
        storage_reservation_percentage=0.3,
    ),
    "not compiled": PlannerConfig(performance_model="storage"),
}


def request(hbm: float = 4, ddr: float = 64, config: PlannerConfig = CONFIGS["default"]):
    return DryRunRequest(
        model=model(rows_of(6)),
        sharders=[EmbeddingBagCollectionSharder()],
        sku_list=["H100", "A100"],
        training_framework=TrainingFramework.APF,
        world_size=4,
        local_world_size=4,
        batch_size=256,
        hbm_gb=hbm,
        ddr_gb=ddr,
        constraints={"t1": ParameterConstraints(pooling_factors=[3.0])},
        planner_config=config,
    )


def run(provider, asked):
    context = PlannerSessionContext(request=asked, results={})
    return DryRunOrchestrator(DefaultPlannerExecutor(provider)).plan(asked, context)


def decided(results):
    return {
        sku: (
            result.success,
            nameless(str(result.planner_failure_reason)),
            result.sharding_options,
            result.critical_path_ms,
            str(result.sharding_plan),
        )
        for sku, result in results.items()
    }


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("fits", [True, False])
def test_the_dry_run_has_torchrecs_results(config, fits, tmp_path):
    """Plans and figures, and the failure of too little memory, are torchrec's; or are loaded."""
    asked = request(*((4, 64) if fits else (0.001, 0.001)), CONFIGS[config])
    provider = PlannerProvider(cache=PlanCache(tmp_path))
    assert isinstance(provider, Protocol)
    theirs = decided(run(DefaultPlannerProvider(), asked))
    assert [result[0] for result in theirs.values()] == [fits, fits]
    assert [decided(run(provider, asked)) for _ in range(2)] == [theirs, theirs]
    # Both SKUs have the same machine. Torchrec's own search keeps no plan.
    assert len(files(tmp_path)) == (fits and config != "not compiled")


def test_the_best_plan_is_no_worse_and_loaded_again(tmp_path, monkeypatch):
    """A second dry run loads every plan, and one of less memory starts from them."""
    uses = []
    plan = Planner.plan
    monkeypatch.setattr(
        Planner, "plan", lambda self, *given: (plan(self, *given), uses.append(self.from_cache))[0]
    )
    provider = PlannerProvider(mode="best-plan", cache=PlanCache(tmp_path))
    theirs = run(DefaultPlannerProvider(), request())
    first, again = (run(provider, request()) for _ in range(2))
    assert uses == ["", "hit", "hit", "hit"]
    assert decided(again) == decided(first)
    for sku, result in theirs.items():
        assert first[sku].max_rank_perf <= result.max_rank_perf
    assert decided(run(provider, request(hbm=3.99))).keys() == {"H100", "A100"}
    assert uses[4] in ("near hit", "start")

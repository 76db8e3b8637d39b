"""A plan file is loaded into a training job's own model, within the job's constraints."""

import json
from dataclasses import replace

import pytest
import torch
from golden_plan import document_of
from torch import nn
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

from harness.contract import UsageError
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints

META = torch.device("meta")


@pytest.fixture
def plan(tmp_path):
    """Return a function that writes a plan of one small table."""

    def write(**fields):
        said = document_of([("t", 8, 4, "table_row_wise", [(8, 4, 0, 0, 0)])], 1, 1, **fields)
        (tmp_path / "plan.json").write_text(json.dumps(said))
        return tmp_path / "plan.json"

    return write


def config(kind, name="t", rows=8, dim=4):
    return kind(name=name, num_embeddings=rows, embedding_dim=dim, feature_names=[f"of_{name}"])


def bags(*names, is_weighted=False, **size):
    tables = [config(EmbeddingBagConfig, name, **size) for name in names or ("t",)]
    return EmbeddingBagCollection(tables, is_weighted, META)


def test_constraints_of_the_job_are_kept_but_those_that_choose_an_option(plan, caplog):
    """All values of `base` stay, also of other tables; the plan's option and cache size win."""
    own = ParameterConstraints(
        pooling_factors=[7.0],
        output_dtype=DataType.FP16,
        bounds_check_mode=BoundsCheckMode.WARNING,
        stochastic_rounding=False,
        min_partition=32,
        cache_params=CacheParams(algorithm=CacheAlgorithm.LFU, load_factor=0.5),
    )
    base = {"t": own, "elsewhere": ParameterConstraints(min_partition=8)}
    within = plan_constraints(plan(cache_load_factor=0.25), base=base)
    assert within["t"] == replace(
        own,
        sharding_types=["table_row_wise"],
        compute_kernels=["fused"],
        min_partition=4,
        cache_params=replace(own.cache_params, load_factor=0.25),
    )
    assert within["elsewhere"] == base["elsewhere"]
    assert own.cache_params.load_factor == 0.5
    assert caplog.records == []


@pytest.mark.parametrize(
    ("own", "lost"),
    [
        (None, "output_dtype"),
        (ParameterConstraints(enforce_hbm=True), "output_dtype"),
        (ParameterConstraints(output_dtype=DataType.FP16), ""),
        (
            ParameterConstraints(["row_wise"], ["dense"], output_dtype=DataType.FP16),
            "compute_kernels, sharding_types",
        ),
    ],
)
def test_constraints_that_a_loaded_plan_loses_are_named(plan, caplog, own, lost):
    """A warning names what the plan had and the constraints lack, and what the plan overrides."""
    plan_constraints(plan(constrained=["output_dtype"]), base=own and {"t": own})
    assert len(caplog.records) == bool(lost)
    assert f"({lost})" in caplog.text or not lost


UNSERVED = {
    "module 'inner' is a torchrec.*FeatureProcessedEmbeddingBagCollection": lambda: (
        FeatureProcessedEmbeddingBagCollection(
            bags(is_weighted=True), PositionWeightedModuleCollection({"of_t": 2}, device=META)
        )
    ),
    "module 'inner' is a torchrec.*EmbeddingTower": lambda: EmbeddingTower(bags(), nn.Linear(1, 1)),
    "plan.json is for a table t of 8 x 4 fp32, not of 7 x 4": lambda: bags(rows=7),
    "not of 8 x 12 fp32": lambda: bags(dim=12),
    "not of 8 x 4 fp16": lambda: bags().half(),  # as it is, not as it was configured
    "does not place table u, which the model has": lambda: bags("t", "u"),
    "places table t, which the model does not have": lambda: nn.Linear(1, 1),
    "has table t twice": lambda: nn.Sequential(bags(), bags()),
    "Table t is in an EmbeddingCollection and must be one of": lambda: EmbeddingCollection(
        tables=[config(EmbeddingConfig)], device=META
    ),
}


@pytest.mark.parametrize("message", UNSERVED)
def test_a_model_that_the_loader_cannot_serve_is_refused_by_the_constructor(plan, message):
    model = nn.Module()
    model.inner = UNSERVED[message]()
    with pytest.raises(UsageError, match=message):
        JsonPlanLoader(plan(), model)


def test_each_load_gives_new_shards(plan):
    loader = JsonPlanLoader(plan(), bags(), 1)
    first, second = loader.load(), loader.load()
    [option] = first.values()
    assert first.keys() == second.keys()
    option.shards[0].rank = None
    assert second.popitem()[1].shards[0].rank == 0
    assert loader.plan_context_hash() is None
    assert loader.get_plan_id() == JsonPlanLoader(plan(), bags()).get_plan_id()
    with pytest.raises(UsageError, match="is for 1 ranks, not for 2"):
        JsonPlanLoader(plan(), bags(), 2)

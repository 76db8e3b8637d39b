"""A plan file is loaded into a training job's own model, within the job's constraints."""

import json
from dataclasses import replace

import pytest
import torch
from golden_plan import document_of
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

from harness.contract import UsageError
from planners.embedding.decision import Plan
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.planning import document
from planners.embedding.quality import quality
from planners.embedding.tables.torchrec_objects import ModelParallelSharder

META = torch.device("meta")


class Model(nn.Module):
    """A job's model: some tables are in an EmbeddingCollection, and all have new module paths."""

    def __init__(self, tables, sequences=()):
        super().__init__()
        bags = [EmbeddingBagConfig(**table) for table in tables if table["name"] not in sequences]
        self.sparse = nn.ModuleDict({"bags": EmbeddingBagCollection(tables=bags, device=META)})
        for table in tables:
            if table["name"] in sequences:
                self.sparse[f"sequence_{table['name']}"] = EmbeddingCollection(
                    tables=[EmbeddingConfig(**table)], device=META
                )
        self.over = nn.Linear(1, 1)


def configs(problem):
    return [
        {
            "name": table.name,
            "num_embeddings": table.rows,
            "embedding_dim": table.dim,
            "data_type": DataType.FP32,
            "feature_names": [table.name],
        }
        for table in problem.tables[::-1]
    ]


def loaded(problem, loader, model, within):
    """Plan a model with a plan loader; return the planner and its plan."""
    planner = EmbeddingShardingPlanner(
        topology=problem.topology,
        constraints=within,
        storage_reservation=problem.storage_reservation(),
        stats=[],
        plan_loader=loader,
    )
    sharding_plan = planner.plan(model, [ModelParallelSharder(), EmbeddingCollectionSharder()])
    return planner, sharding_plan


def small_plan(folder, **fields):
    """Write a plan of one small table."""
    said = document_of([("t", 8, 4, "table_wise", [(8, 4, 0, 0, 0)])], 1, 1)
    said["tables"][0].update(fields)
    (folder / "plan.json").write_text(json.dumps(said))
    return folder / "plan.json"


def bags(is_weighted=False):
    config = EmbeddingBagConfig(
        name="t", num_embeddings=8, embedding_dim=4, feature_names=["f"], data_type=DataType.FP32
    )
    return EmbeddingBagCollection([config], is_weighted, META)


def test_narrow_columns_and_cache_sizes_come_back_through_the_constraints(problem, path):
    said = json.loads(path.read_text())
    table = next(table for table in said["tables"] if table["dim"] == 64)
    shard = table["shards"][0]
    table["sharding_type"], table["compute_kernel"] = "column_wise", "fused_uvm_caching"
    table["cache_load_factor"] = 0.3
    table["shards"] = [
        {**shard, "size": [table["rows"], 32], "offset": [0, column], "rank": column // 32}
        for column in (0, 32)
    ]
    path.write_text(json.dumps(said))
    model = Model(configs(problem))
    loader = JsonPlanLoader(path, model)
    planner, sharding_plan = loaded(problem, loader, model, plan_constraints(path))
    # The planner enumerates the options of the plan alone.
    assert len(planner._enumerator.last_stored_search_space) == len(problem.tables)
    placed = sharding_plan.plan["sparse.bags"][table["name"]]
    assert (placed.ranks, placed.cache_params.load_factor) == ([0, 1], 0.3)
    with pytest.raises(PlannerError, match="not all search space is covered"):
        loaded(problem, loader, model, problem.constraints)


def test_constraints_of_the_job_are_kept_but_those_that_choose_an_option(problem, path, caplog):
    """All values of `base` stay, also of other tables; the plan's option and cache size win."""
    table = json.loads(path.read_text())["tables"][0]
    own = ParameterConstraints(
        pooling_factors=[7.0],
        output_dtype=DataType.FP16,
        bounds_check_mode=BoundsCheckMode.WARNING,
        stochastic_rounding=False,
        min_partition=4,
        cache_params=CacheParams(algorithm=CacheAlgorithm.LFU, load_factor=0.5),
    )
    base = {table["name"]: own, "elsewhere": ParameterConstraints(min_partition=8)}
    within = plan_constraints(path, base=base)
    assert within[table["name"]] == replace(
        own,
        sharding_types=[table["sharding_type"]],
        compute_kernels=[table["compute_kernel"]],
        min_partition=table["shards"][0]["size"][1],
        cache_params=replace(own.cache_params, load_factor=table["cache_load_factor"]),
    )
    assert within["elsewhere"] == base["elsewhere"]
    assert own.cache_params.load_factor == 0.5
    assert caplog.records == []


@pytest.mark.parametrize(
    ("base", "lost"),
    [
        (None, "output_dtype"),
        ({"t": ParameterConstraints(enforce_hbm=True)}, "output_dtype"),
        ({"t": ParameterConstraints(output_dtype=DataType.FP16)}, ""),
        (
            {"t": ParameterConstraints(["row_wise"], ["dense"], output_dtype=DataType.FP16)},
            "compute_kernels, sharding_types",
        ),
    ],
)
def test_constraints_that_a_loaded_plan_loses_are_named(tmp_path, caplog, base, lost):
    """A warning names what the plan had and the constraints lack, and what the plan overrides."""
    plan_constraints(small_plan(tmp_path, constrained=["output_dtype"]), base=base)
    assert len(caplog.records) == bool(lost)
    assert f"({lost})" in caplog.text or not lost


WRAPPED = {
    "FeatureProcessedEmbeddingBagCollection": lambda: FeatureProcessedEmbeddingBagCollection(
        bags(is_weighted=True), PositionWeightedModuleCollection({"f": 2}, device=META)
    ),
    "EmbeddingTower": lambda: EmbeddingTower(bags(), nn.Linear(1, 1)),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_model_that_the_loader_cannot_serve_is_refused_by_the_constructor(tmp_path, kind):
    """The sentence names the module and its whole class; torchrec's planner would say a riddle."""
    model = nn.Module()
    model.inner = WRAPPED[kind]()
    with pytest.raises(UsageError, match=rf"module 'inner' is a torchrec\..*{kind}\."):
        JsonPlanLoader(small_plan(tmp_path), model)


def test_tables_are_compared_as_they_are_not_as_they_were_configured(tmp_path):
    """A model that was converted to half precision has tables of fp16."""
    path = small_plan(tmp_path, dtype="fp16")
    assert len(JsonPlanLoader(path, bags().half()).load()) == 1
    with pytest.raises(UsageError, match="not of 8 x 4 fp32"):
        JsonPlanLoader(path, bags())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda first, others: [{**first, "num_embeddings": 7}, *others], "11 of .* not of 7 x "),
        (lambda first, others: [{**first, "embedding_dim": 12}, *others], "not of .* x 12 fp32"),
        (lambda first, others: [{**first, "name": "other"}, *others], "not place table other,"),
        (lambda first, others: others, "table_11, which the model does not have"),
    ],
)
def test_a_table_that_differs_is_named(problem, path, change, message):
    first, *others = configs(problem)
    with pytest.raises(UsageError, match=f"plan.json .*{message}"):
        JsonPlanLoader(path, Model(change(first, others)))


def test_repeated_tables_and_other_ranks_are_refused(problem, path):
    model = Model(configs(problem))
    with pytest.raises(UsageError, match="is for 16 ranks, not for 8"):
        JsonPlanLoader(path, model, 8)
    model.again = Model(configs(problem)[:1])
    with pytest.raises(UsageError, match="has table table_11 twice"):
        JsonPlanLoader(path, model)


def test_an_embedding_collection_takes_its_own_sharding_types_alone(problem, plan, path):
    table = next(option.name for option in plan.options if option.sharding_type == "table_row_wise")
    with pytest.raises(UsageError, match=f"Table {table} is in an EmbeddingCollection and must be"):
        JsonPlanLoader(path, Model(configs(problem), [table]))


def test_the_present_plan_need_not_be_one_that_trains(tmp_path):
    """Uneven rows are a present plan; shards that do not tile their table are none."""
    path, halves = tmp_path / "old.json", [(5, 8, 0, 0, 0), (3, 8, 5, 0, 1)]
    path.write_text(json.dumps(document_of([("t", 8, 8, "row_wise", halves)], 2, 2)))
    assert PlanTable.of(path).tables["t"].ranks == (0, 1)
    path.write_text(json.dumps(document_of([("t", 8, 8, "row_wise", halves[:1])], 2, 2)))
    with pytest.raises(UsageError, match=r"old.json is a damaged plan: .* in none"):
        PlanTable.of(path)


def test_the_document_says_what_was_decided_and_how_good_it_is(problem, plan):
    said = document(problem, plan)
    assert said["tables"] == document(problem, Plan(plan.options[::-1]))["tables"]
    assert (said["world_size"], said["local_world_size"]) == (16, 8)
    assert said["quality"] == quality(problem, plan)
    assert [(table["name"], table["rows"], table["dim"]) for table in said["tables"]] == [
        (table.name, table.rows, table.dim) for table in problem.tables
    ]


def test_the_estimates_come_back_and_each_load_gives_new_shards(problem, plan, path):
    loader = JsonPlanLoader(path, Model(configs(problem)))
    first, second = loader.load(), loader.load()
    estimates = {option.name: option.shards for option in plan.options}
    assert {option.name: option.shards for option in first.values()} == estimates
    next(iter(first.values())).shards[0].rank = None
    assert {option.name: option.shards for option in second.values()} == estimates
    assert loader.plan_context_hash() is None
    assert loader.get_plan_id() == JsonPlanLoader(path, Model(configs(problem))).get_plan_id()

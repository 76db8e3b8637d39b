"""Plans are written as JSON, and loaded into a training job's own model."""

import json
from dataclasses import replace

import pytest
import torch
from golden_plan import decisions, document_of, first, said_again
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams
from torchrec.inference.modules import quantize_embeddings
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)

from harness.contract import UsageError
from planners.embedding.decision import Plan
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.planning import document
from planners.embedding.quality import quality
from planners.embedding.tables.torchrec_objects import ModelParallelSharder


class Model(nn.Module):
    """A job's model: some tables are in an EmbeddingCollection, and all have new module paths."""

    def __init__(self, tables, sequences=()):
        super().__init__()
        meta = torch.device("meta")
        bags = [table for table in tables if table["name"] not in sequences]
        self.sparse = nn.ModuleDict({"bags": nn.ModuleList([nn.Identity()])})
        self.sparse["bags"].append(
            EmbeddingBagCollection(
                tables=[EmbeddingBagConfig(**table) for table in bags], device=meta
            )
        )
        for table in tables:
            if table["name"] in sequences:
                self.sparse[f"sequence_{table['name']}"] = EmbeddingCollection(
                    tables=[EmbeddingConfig(**table)], device=meta
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


def loaded(problem, loader, model, within, kind=EmbeddingShardingPlanner):
    """Plan a model with a plan loader; return the planner and its plan."""
    planner = kind(
        topology=problem.topology,
        constraints=within,
        storage_reservation=problem.storage_reservation(),
        stats=[],
        plan_loader=loader,
    )
    sharding_plan = planner.plan(model, [ModelParallelSharder(), EmbeddingCollectionSharder()])
    return planner, sharding_plan


@pytest.mark.parametrize("kind", [EmbeddingShardingPlanner, Planner])
@pytest.mark.parametrize("constrained", [True, False])
def test_a_job_gets_the_plan_without_a_search(problem, plan, path, constrained, kind):
    sequence = next(
        option.name
        for option in plan.options
        if option.sharding_type in ("table_wise", "column_wise", "row_wise")
    )
    model = Model(configs(problem), [sequence])
    within = plan_constraints(path) if constrained else problem.constraints
    planner, sharding_plan = loaded(problem, JsonPlanLoader(path, model, 16), model, within, kind)
    assert decisions(planner._best_plan) == decisions(plan.options)
    assert planner._num_proposals == 0
    assert set(sharding_plan.plan) == {"sparse.bags.1", f"sparse.sequence_{sequence}"}
    placed = {
        name: (each.sharding_type, each.compute_kernel, each.ranks)
        for module_plan in sharding_plan.plan.values()
        for name, each in module_plan.items()
    }
    assert placed == {
        name: (sharding_type, kernel, [rank for *_, rank in shards])
        for name, (sharding_type, kernel, shards) in decisions(plan.options).items()
    }


def test_with_its_constraints_a_planner_enumerates_the_options_of_the_plan_alone(problem, path):
    model = Model(configs(problem))
    planner, _ = loaded(problem, JsonPlanLoader(path, model), model, plan_constraints(path))
    assert len(planner._enumerator.last_stored_search_space) == len(problem.tables)


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
    _, sharding_plan = loaded(problem, JsonPlanLoader(path, model), model, plan_constraints(path))
    placed = sharding_plan.plan["sparse.bags.1"][table["name"]]
    assert (placed.ranks, placed.cache_params.load_factor) == ([0, 1], 0.3)
    with pytest.raises(PlannerError, match="not all search space is covered"):
        loaded(problem, JsonPlanLoader(path, model), model, problem.constraints)


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
    cache = replace(own.cache_params, load_factor=table["cache_load_factor"])
    assert within[table["name"]] == replace(
        own,
        sharding_types=[table["sharding_type"]],
        compute_kernels=[table["compute_kernel"]],
        min_partition=table["shards"][0]["size"][1],
        cache_params=cache,
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
    said = document_of([("t", 8, 4, "table_wise", [(8, 4, 0, 0, 0)])], 1, 1)
    said["tables"][0]["constrained"] = ["output_dtype"]
    (tmp_path / "plan.json").write_text(json.dumps(said))
    plan_constraints(tmp_path / "plan.json", base=base)
    assert len(caplog.records) == bool(lost)
    assert f"({lost})" in caplog.text or not lost


def bags(is_weighted=False, device="meta"):
    config = EmbeddingBagConfig(
        name="t", num_embeddings=8, embedding_dim=4, feature_names=["f"], data_type=DataType.FP32
    )
    return EmbeddingBagCollection([config], is_weighted, torch.device(device))


def feature_processed():
    return FeatureProcessedEmbeddingBagCollection(
        bags(is_weighted=True),
        PositionWeightedModuleCollection({"f": 2}, device=torch.device("meta")),
    )


def managed_collision():
    tables = bags()
    managed = MCHManagedCollisionModule(8, torch.device("meta"), DistanceLFU_EvictionPolicy(), 1)
    return ManagedCollisionEmbeddingBagCollection(
        tables, ManagedCollisionCollection({"t": managed}, tables.embedding_bag_configs())
    )


def quantized():
    model = nn.Sequential(bags(device="cpu"))
    return quantize_embeddings(model, dtype=torch.int8, inplace=True)[0]


WRAPPED = {
    "FeatureProcessedEmbeddingBagCollection": feature_processed,
    "ManagedCollisionEmbeddingBagCollection": managed_collision,
    "EmbeddingTower": lambda: EmbeddingTower(bags(), nn.Linear(1, 1)),
    "quant.embedding_modules.EmbeddingBagCollection": quantized,
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_model_that_the_loader_cannot_serve_is_refused_by_the_constructor(tmp_path, kind):
    """One sentence names the module and its whole class; torchrec's planner would say a riddle."""
    said = document_of([("t", 8, 4, "table_wise", [(8, 4, 0, 0, 0)])], 1, 1)
    (tmp_path / "plan.json").write_text(json.dumps(said))
    model = nn.Module()
    model.inner = WRAPPED[kind]()
    with pytest.raises(UsageError, match=rf"module 'inner' is a torchrec\..*{kind}\.") as refused:
        JsonPlanLoader(tmp_path / "plan.json", model)
    assert str(refused.value).count(". ") == 0


def test_tables_are_compared_as_they_are_not_as_they_were_configured(problem, plan, tmp_path):
    """A model that was converted to half precision has tables of fp16."""
    said = document_of([("t", 8, 4, "table_wise", [(8, 4, 0, 0, 0)])], 1, 1)
    said["tables"][0]["dtype"] = "fp16"
    (tmp_path / "plan.json").write_text(json.dumps(said))
    assert len(JsonPlanLoader(tmp_path / "plan.json", bags().half()).load()) == 1
    with pytest.raises(UsageError, match="not of 8 x 4 fp32"):
        JsonPlanLoader(tmp_path / "plan.json", bags())


def test_the_present_plan_need_not_be_one_that_trains(tmp_path):
    """Uneven rows are a present plan; shards that do not tile their table are none."""
    halves = [(5, 8, 0, 0, 0), (3, 8, 5, 0, 1)]
    for boxes, can_be in ((halves, True), (halves[:1], False)):
        path = tmp_path / "old.json"
        path.write_text(json.dumps(document_of([("t", 8, 8, "row_wise", boxes)], 2, 2)))
        if can_be:
            assert PlanTable.of(path).tables["t"].ranks == (0, 1)
        else:
            with pytest.raises(UsageError, match=r"old.json is a damaged plan: .* in none"):
                PlanTable.of(path)


def test_the_document_says_what_was_decided_and_how_good_it_is(problem, plan):
    said = document(problem, plan)
    assert json.loads(json.dumps(said)) == said
    assert said["tables"] == document(problem, Plan(plan.options[::-1]))["tables"]
    assert (said["world_size"], said["local_world_size"]) == (16, 8)
    assert said["quality"] == quality(problem, plan)
    assert [table["name"] for table in said["tables"]] == [table.name for table in problem.tables]
    options = {option.name: option for option in plan.options}
    for table, written in zip(problem.tables, said["tables"], strict=True):
        assert (written["rows"], written["dim"]) == (table.rows, table.dim)
        shards = options[table.name].shards
        assert [shard["rank"] for shard in written["shards"]] == [shard.rank for shard in shards]
        for shard, expected in zip(written["shards"], shards, strict=True):
            assert shard["storage_bytes"]["hbm"] == expected.storage.hbm
            assert shard["perf_ms"]["fwd_compute"] == expected.perf.fwd_compute


def test_the_estimates_come_back_and_each_load_gives_new_shards(problem, plan, path):
    loader = JsonPlanLoader(path, Model(configs(problem)))
    first, second = loader.load(), loader.load()
    estimates = {option.name: option.shards for option in plan.options}
    assert {option.name: option.shards for option in first.values()} == estimates
    next(iter(first.values())).shards[0].rank = None
    assert {option.name: option.shards for option in second.values()} == estimates


def test_the_plan_has_an_identity_and_no_context(problem, path):
    loader, again = (JsonPlanLoader(path, Model(configs(problem))) for _ in range(2))
    assert loader.plan_context_hash() is None
    assert loader.get_plan_id().startswith("plan.json#")
    assert loader.get_plan_id() == again.get_plan_id()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_embeddings": 7}, "table table_11 of .* not of 7 x "),
        ({"embedding_dim": 12}, "table table_11 of .* not of .* x 12 fp32"),
        ({"data_type": DataType.FP16}, "table table_11 of .* not of .* fp16"),
        ({"name": "other"}, "does not place table other, which the model has"),
    ],
)
def test_a_table_that_differs_is_named(problem, path, change, message):
    first, *others = configs(problem)
    with pytest.raises(UsageError, match=f"plan.json .*{message}"):
        JsonPlanLoader(path, Model([{**first, **change}, *others]))


def test_missing_and_repeated_tables_and_other_ranks_are_refused(problem, path):
    with pytest.raises(UsageError, match="table_11, which the model does not have"):
        JsonPlanLoader(path, Model(configs(problem)[1:]))
    model = Model(configs(problem))
    with pytest.raises(UsageError, match="is for 16 ranks, not for 8"):
        JsonPlanLoader(path, model, 8)
    model.again = Model(configs(problem)[:1])
    with pytest.raises(UsageError, match="has table table_11 twice"):
        JsonPlanLoader(path, model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("", "is no plan: it must be JSON"),
        ("{", "is no plan: it must be JSON"),
        ("[]", "its format must be 'shardbench-plan'"),
        ('{"format": "other"}', "its format must be 'shardbench-plan'"),
        ('{"format": "shardbench-plan", "version": 9}', "of version 9; it must be 1"),
        ('{"format": "shardbench-plan", "version": true}', "of version True; it must be 1"),
        ('{"format": "shardbench-plan", "version": 1.0}', "Expected `int`, got `float`"),
        ('{"format": "shardbench-plan", "version": 1}', "missing required field `world_size`"),
        ('{"format": "shardbench-plan", "version": 1, "tables": [{}]}', "missing required field"),
        ('{"format": "shardbench-plan", "version": 1, "tables": [1]}', "is a damaged plan: "),
        ('{"format": "shardbench-plan", "version": 1, "tables": []}', "length >= 1"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_a_sentence(tmp_path, text, message):
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    for read in (lambda: JsonPlanLoader(path, nn.Identity()), lambda: plan_constraints(path)):
        with pytest.raises(UsageError, match=message) as raised:
            read()
        assert "plan.json" in str(raised.value)


def test_hosts_hold_the_tables_that_are_sharded_over_one(problem, plan, path):
    def shift(said):
        shards = first(said, "table_row_wise")["shards"]
        for shard in shards:
            shard["rank"] = (shard["rank"] + 4) % 16

    said_again(path, shift)
    with pytest.raises(UsageError, match=r"Shard 0 of table .* must be on rank "):
        plan_constraints(path)


def test_an_embedding_collection_takes_its_own_sharding_types_alone(problem, plan, path):
    table = next(option.name for option in plan.options if option.sharding_type == "table_row_wise")
    with pytest.raises(UsageError, match=f"Table {table} is in an EmbeddingCollection and must be"):
        JsonPlanLoader(path, Model(configs(problem), [table]))

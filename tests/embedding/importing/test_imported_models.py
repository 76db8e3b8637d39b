"""An imported model is planned as the model itself, and its plan loads into the model."""

from random import Random

import imported_model
import msgspec
import torch
from hypothesis import given, settings, strategies as st
from imported import imported
from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.planning import document
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.tables.torchrec_objects import ModelParallelSharder, SequenceSharder

META = torch.device("meta")


def random_model(seed: int) -> nn.Module:
    """Return a model with collections of every kind of lookup, dimension and data type."""
    random, model = Random(seed), nn.Module()
    for number in range(random.randint(1, 4)):
        dim = random.choice([16, 64, 128])
        tables = [
            {
                "name": f"t{number}_{table}",
                "num_embeddings": random.choice([7, 1000, 2_000_000]),
                "embedding_dim": dim,
                "data_type": random.choice([DataType.FP32, DataType.FP16]),
                "feature_names": [f"f{number}_{table}_{f}" for f in range(random.randint(1, 2))],
            }
            for table in range(random.randint(1, 3))
        ]
        if random.random() < 0.5:
            configs = [EmbeddingConfig(**table) for table in tables]
            collection: nn.Module = EmbeddingCollection(configs, META)
        else:
            bags = [EmbeddingBagConfig(**table) for table in tables]
            collection = EmbeddingBagCollection(bags, random.random() < 0.5, META)
        model.add_module(f"part_{number}", collection)
    return model


def problem_of(model: nn.Module, file) -> EmbeddingProblem:
    """Import a model into a file of tables, and build the file's problem."""
    imported_model.MODELS[:] = [model]
    outcome = imported("imported_model:build", str(file), assumed={"pooling_factor": "20"})
    file.write_bytes(outcome.content)
    return FAMILY.work.build(WorkloadSpec(str(file)), find_topology("dgx_h100", 16))


def options_of(problem: EmbeddingProblem, model: nn.Module) -> dict:
    """Return the estimates of all options that torchrec enumerates for a model, by option."""
    options = problem.enumerator(EmbeddingEnumerator).enumerate(
        model, [ModelParallelSharder(), SequenceSharder()]
    )
    return {
        (option.name, option.sharding_type, option.compute_kernel): [
            (*shard.size, shard.perf.total, shard.storage.hbm, shard.storage.ddr)
            for shard in option.shards
        ]
        for option in options
    }


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["t.csv", "t.parquet"]))
def test_an_imported_model_has_the_options_and_estimates_of_the_model(tmp_path_factory, seed, name):
    """Every option of the imported tables is estimated as torchrec estimates the model's own."""
    model = random_model(seed)
    problem = problem_of(model, tmp_path_factory.mktemp("imported") / name)
    assert options_of(problem, problem.module) == options_of(problem, model)


def test_the_plan_of_an_imported_model_loads_into_the_model(tmp_path):
    """A job's planner takes the plan of the imported tables for its model without a search."""
    model = random_model(5)
    problem = problem_of(model, tmp_path / "t.csv")
    plan = FAMILY.find("certified").prepared(problem).run()
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(document(problem, plan)))
    planner = EmbeddingShardingPlanner(
        topology=problem.topology,
        constraints=plan_constraints(path),
        storage_reservation=problem.storage_reservation(),
        stats=[],
        plan_loader=JsonPlanLoader(path, model, topology=problem.topology),
    )
    sharding_plan = planner.plan(model, get_default_sharders())
    placed = {
        name: (table.sharding_type, table.ranks)
        for part in sharding_plan.plan.values()
        for name, table in part.items()
    }
    assert placed == {
        option.name: (option.sharding_type, [shard.rank for shard in option.shards])
        for option in plan.options
    }

"""Tables of a user's torchrec model, as the importer reads them."""

import sys
from pathlib import Path

import pytest
from imported import imported, refusal, tables_of
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.tables.files import Table, parse_tables

MODEL = """
import torch
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModule
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule)

META = torch.device("meta")

def bags(*configs, is_weighted=False):
    return EmbeddingBagCollection(list(configs), is_weighted, META)

def bag(name, rows, dim, features=1, **more):
    return EmbeddingBagConfig(
        name=name, num_embeddings=rows, embedding_dim=dim,
        feature_names=[f"{name}{i}" for i in range(features)], **more)

def sequence(name):
    return EmbeddingConfig(name=name, num_embeddings=30, embedding_dim=16, feature_names=[name])

def managed(config):
    policy = DistanceLFU_EvictionPolicy()
    module = MCHManagedCollisionModule(
        zch_size=10, device=torch.device("cpu"), eviction_interval=1, eviction_policy=policy)
    collisions = ManagedCollisionCollection({config.name: module}, [config])
    return ManagedCollisionEmbeddingBagCollection(bags(config), collisions)

def optimized(collection):
    _apply_optimizer_in_backward(torch.optim.Adam, collection.parameters(), {"lr": 0.1})
    return collection

def model(**parts):
    made = nn.Module()
    for name, part in parts.items():
        made.add_module(name, part)
    return made
"""


def options_of(problem: EmbeddingProblem, model: nn.Module) -> dict:
    """Return the estimates of all options that torchrec enumerates for a model, by option."""
    options = problem.enumerator(EmbeddingEnumerator).enumerate(model, problem.sharders)
    return {
        (option.name, option.sharding_type, option.compute_kernel): [
            (*shard.size, shard.perf.total, shard.storage.hbm, shard.storage.ddr)
            for shard in option.shards
        ]
        for option in options
    }


def test_every_collection_of_a_model_is_read_in_order_and_planned_alike(module):
    path = module(MODEL + """
def build():
    first = bags(bag("a", 10, 8), bag("b", 20, 8, features=2, data_type=DataType.FP16))
    sequences = EmbeddingCollection(device=META, tables=[sequence("c")])
    tower = model(plain=nn.EmbeddingBag(5, 4), sequence=sequences)
    weighted = bags(bag("d", 10, 8), is_weighted=True)
    return model(first=first, towers=nn.ModuleList([tower]), weighted=weighted, again=first)
""")  # fmt: skip
    outcome = imported(path, "t.csv", assumed={"pooling_factor": "3"})
    assert parse_tables(outcome.content, "t.csv") == (
        Table("a", 10, 8, (3.0,)),
        Table("b", 20, 8, (3.0, 3.0), "fp16"),
        Table("c", 30, 16, (3.0,), lookup="sequence"),
        Table("d", 10, 8, (3.0,), lookup="weighted"),
    )
    assert [text.split(": ")[1] for text in outcome.left_out] == ["towers.0.plain"]
    Path("t.csv").write_bytes(outcome.content)
    problem = FAMILY.work.build(WorkloadSpec("t.csv"), find_topology("dgx_h100", 16))
    model = sys.modules[path.partition(":")[0]].build()
    assert options_of(problem, problem.module) == options_of(problem, model)


def test_a_list_of_configs_will_do(module):
    listed = module(MODEL + "def build(): return [bag('a', 10, 8), sequence('b')]")
    assert [table.lookup for table in tables_of(listed)] == ["pooled", "sequence"]
    assert any("without weights" in text for text in imported(listed).assumed)


@pytest.mark.parametrize(
    ("made", "left_out"),
    [
        ("managed(bag('a', 10, 8))", "all of ManagedCollisionEmbeddingBagCollection but"),
        (
            "model(x=EmbeddingTower(bags(bag('a', 10, 8)), nn.Linear(1, 1)))",
            "all of EmbeddingTower but",
        ),
        (
            "FeatureProcessedEmbeddingBagCollection(bags(bag('a', 10, 8), is_weighted=True), "
            "{'a0': PositionWeightedModule(9, META)})",
            "all of FeatureProcessedEmbeddingBagCollection but",
        ),
        ("optimized(bags(bag('a', 10, 8)))", "the kinds of optimizers"),
        ("bags(bag('a', 10, 8, use_virtual_table=True))", "use_virtual_table of tables"),
        ("[bag('a', 10, 8, total_num_buckets=5)]", "total_num_buckets of tables"),
    ],
)
def test_what_a_file_of_tables_cannot_hold_is_listed(module, made, left_out):
    """Properties that the planner reads, and the file has no column for, are named as left out."""
    outcome = imported(module(MODEL + f"def build(): return {made}"))
    assert [table.name for table in parse_tables(outcome.content, "t.csv")] == ["a"]
    (said,) = outcome.left_out
    assert said.startswith(left_out)
    assert said.endswith(": a")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def build(): raise ValueError('two\\nlines')", "ValueError: two lines."),
        ("def build(): raise SystemExit(3)", "SystemExit: 3."),
        ("def build(x): return x", "TypeError: build() missing 1 required"),
        ("import nothing_like_that", "ModuleNotFoundError"),
        ("def build() return", "SyntaxError"),
        ("build = 5", "TypeError: build is no function"),
        ("other = 5", "AttributeError"),
        ("def build(): return 5", "not int"),
        ("def build(): return []", "holds no embedding table"),
        ("from torch import nn\ndef build(): return nn.Embedding(5, 4)", "left out: nn.Embedding"),
    ],
)
def test_what_goes_wrong_in_a_users_function_is_one_sentence(module, code, said):
    path_before = list(sys.path)
    assert said in refusal(module(code))
    assert sys.path == path_before

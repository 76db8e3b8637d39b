"""Tables of a user's torchrec model, as the importer reads them."""

import sys

import pytest
from imported import imported, refusal, tables_of

from planners.embedding.tables.files import Table, parse_tables

MODEL = """
import torch
from torch import nn
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

META = torch.device("meta")

def bags(*configs):
    return EmbeddingBagCollection(device=META, tables=list(configs))

def bag(name, rows, dim, features=1, **more):
    return EmbeddingBagConfig(
        name=name, num_embeddings=rows, embedding_dim=dim,
        feature_names=[f"{name}{i}" for i in range(features)], **more)
"""


def test_every_collection_of_a_model_is_read_in_order_and_the_rest_left_out(module):
    path = module(MODEL + """
class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = nn.EmbeddingBag(5, 4)
        self.sequence = EmbeddingCollection(device=META, tables=[
            EmbeddingConfig(name="c", num_embeddings=30, embedding_dim=16, feature_names=["c"])])

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = bags(bag("a", 10, 8), bag("b", 20, 8, features=2, data_type=DataType.FP16))
        self.towers = nn.ModuleList([Tower(), nn.Linear(2, 2)])
        self.again = self.first

def build():
    return Model()
""")  # fmt: skip
    found = imported(path, assumed={"pooling_factor": "3"})
    assert parse_tables(found.content, "t.csv") == (
        Table("a", 10, 8, (3.0,)),
        Table("b", 20, 8, (3.0, 3.0), "fp16"),
        Table("c", 30, 16, (3.0,), lookup="sequence"),
    )
    assert [text.split(": ")[1] for text in found.left_out] == ["towers.0.plain"]


def test_a_list_of_configs_will_do_and_a_collection_itself(module):
    found = imported(module(MODEL + """
def build():
    config = EmbeddingConfig(name="b", num_embeddings=30, embedding_dim=16, feature_names=["b"])
    return [bag("a", 10, 8), config]
"""))  # fmt: skip
    lookups = [table.lookup for table in parse_tables(found.content, "t.csv")]
    assert lookups == ["pooled", "sequence"]
    assert any("without weights" in text for text in found.assumed)
    assert len(tables_of(module(MODEL + "def build(): return bags(bag('a', 10, 8))"))) == 1


def test_a_collection_inside_a_managed_one_is_read_once(module):
    path = module(MODEL + """
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule)

def build():
    config = bag("a", 10, 8)
    modules = {"a": MCHManagedCollisionModule(
        zch_size=10, device=torch.device("cpu"), eviction_interval=1,
        eviction_policy=DistanceLFU_EvictionPolicy())}
    return ManagedCollisionEmbeddingBagCollection(
        bags(config), ManagedCollisionCollection(modules, [config]))
""")  # fmt: skip
    found = imported(path)
    assert [table.name for table in parse_tables(found.content, "t.csv")] == ["a"]
    assert found.left_out == ("all of ManagedCollisionEmbeddingBagCollection but its tables: a",)


@pytest.mark.parametrize(
    ("made", "left_out"),
    [
        ("EmbeddingTower(bags(bag('a', 10, 8)), nn.Linear(1, 1))", "all of EmbeddingTower but"),
        (
            "FeatureProcessedEmbeddingBagCollection(weighted(), "
            "{'a0': PositionWeightedModule(9, META)})",
            "all of FeatureProcessedEmbeddingBagCollection but",
        ),
        ("optimized()", "the kinds of optimizers"),
        ("bags(bag('a', 10, 8, use_virtual_table=True))", "use_virtual_table of tables"),
        ("[bag('a', 10, 8, total_num_buckets=5)]", "total_num_buckets of tables"),
    ],
)
def test_what_a_file_of_tables_cannot_hold_is_listed(module, made, left_out):
    """Properties that the planner reads, and the file has no column for, are named as left out."""
    path = module(MODEL + f"""
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModule
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

def weighted():
    return EmbeddingBagCollection([bag("a", 10, 8)], is_weighted=True, device=META)

def optimized():
    made = bags(bag("a", 10, 8))
    _apply_optimizer_in_backward(torch.optim.Adam, made.parameters(), {{"lr": 0.1}})
    return made

def build():
    return {made}
""")  # fmt: skip
    (said,) = imported(path).left_out
    assert said.startswith(left_out)
    assert said.endswith(": a")


def test_weighted_lookups_are_kept(module):
    """The tables of a weighted EmbeddingBagCollection are imported as weighted."""
    (table,) = tables_of(module(MODEL + """
def build():
    return EmbeddingBagCollection([bag("a", 10, 8)], is_weighted=True, device=META)
"""))  # fmt: skip
    assert table.lookup == "weighted"


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
        ("from torch import nn\ndef build(): return nn.Linear(2, 2)", "holds no embedding table"),
        ("from torch import nn\ndef build(): return nn.Embedding(5, 4)", "left out: nn.Embedding"),
    ],
)
def test_what_goes_wrong_in_a_users_function_is_one_sentence(module, code, said):
    path_before = list(sys.path)
    assert said in refusal(module(code))
    assert sys.path == path_before

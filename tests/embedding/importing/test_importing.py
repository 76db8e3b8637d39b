"""Tables are imported from files and models, with notes on what is assumed, changed or left out."""

import csv
import io
import sys
from pathlib import Path
from uuid import uuid4

import pandas as pd
import pytest
from hostile import TEXTS, refusal
from hypothesis import given, settings, strategies as st
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.contract import WorkloadSpec
from harness.contract.workloads import Imported, ImportRequest
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.importing.importer import read
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.tables.files import Table, parse_tables

MODEL = """
import torch
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower

META = torch.device("meta")

def bags(*configs, is_weighted=False):
    return EmbeddingBagCollection(list(configs), is_weighted, META)

def bag(name, rows, dim, features=1, **more):
    return EmbeddingBagConfig(
        name=name, num_embeddings=rows, embedding_dim=dim,
        feature_names=[f"{name}{i}" for i in range(features)], **more)

def sequence(name):
    return EmbeddingConfig(name=name, num_embeddings=30, embedding_dim=16, feature_names=[name])

def optimized(collection):
    _apply_optimizer_in_backward(torch.optim.Adam, collection.parameters(), {"lr": 0.1})
    return collection

def model(**parts):
    made = nn.Module()
    for name, part in parts.items():
        made.add_module(name, part)
    return made
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def source(text: str, name: str = "mine.csv") -> str:
    """Write a file in the current folder, and return its name."""
    Path(name).write_text(text)
    return name


def module(code: str) -> str:
    """Write a new Python module, and return the name of its function `build`."""
    name = f"model_{uuid4().hex}"
    return source(code, f"{name}.py").replace(".py", ":build")


def imported(source: str, target: str = "tables.csv", **options) -> Imported:
    return read(ImportRequest(source, target, **options))


def tables_of(source: str, **options) -> tuple[Table, ...]:
    return parse_tables(imported(source, **options).content, "tables.csv")


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("name,rows,dim,pooling_factor,dtype,lookup", "user,1000,64,1|10,fp16,pooled"),
        (
            "Table Name,Num Embeddings,Embedding-Dim,AVG_POOLING,Data Type,Pooling Type",
            "user,1000.0,64,1|10,FP16,sum",
        ),
        ("feature;hash_size;emb_dim;mean_length;precision", 'user;"1,000";64;1|10;half'),
        ("table\tnum_rows\twidth\tnnz\tdata_type\tlookup", "user\t1e3\t64\t1|10\tfloat16\tMEAN"),
        ("embedding,cardinality,embedding_size,hotness,dtype", "user,+01000,64,1|10,torch.float16"),
    ],
)
def test_columns_and_values_are_known_by_their_usual_names(header, row):
    """Separators, names of columns and spellings of numbers and types may be anybody's."""
    path = source(f"# theirs\n{header}\n{row}\n\n")
    assert tables_of(path) == (Table("user", 1000, 64, (1.0, 10.0), "fp16", "pooled"),)


def test_missing_columns_and_cells_are_assumed_and_reported():
    """Each value that the file does not have is a note, and the user may give another."""
    path = source("who,rows,dim\n,1000,16\nb,50,8\n")
    named = {"columns": {"name": "who"}}
    assert tables_of(path, **named) == (Table("table_0", 1000, 16, (1.0,)), Table("b", 50, 8, (1,)))
    reasons = [text.split(" where")[0] for text in imported(path, **named).assumed]
    assert reasons == ["pooling_factor 1", "dtype fp32", "lookup pooled"]
    given = {"pooling_factor": "20", "lookup": "sequence"}
    table, _ = tables_of(path, **named, assumed=given)
    assert table == Table("table_0", 1000, 16, (20.0,), lookup="sequence")
    assumed = imported(source("name,rows,dim,pooling\na,9,4,2\nb,9,4,\n")).assumed
    assert any(text.startswith("pooling_factor 1") and text.endswith(": b") for text in assumed)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("rows,dim\n", {}, "lists no table"),
        ("a,b\n1,2\n", {}, "no column is called like rows"),
        ("hash_size,num_rows,dim\n1,2,4\n", {}, "any of the columns hash_size, num_rows"),
        ("rows,dim\n1,4\n", {"columns": {"rows": "row"}}, "Unknown column of"),
        ("rows,dim\n1,4\n", {"columns": {"row": "rows"}}, "Unknown field 'row'"),
        ("rows,dim\n1,4\n", {"assumed": {"name": "x"}}, "cannot be assumed"),
        ("rows,dim\n1,4\n", {"format": "xml"}, "Unknown format 'xml'"),
        ("rows,dim\n1,4\n", {"format": "model"}, "must be module:function"),
        ("rows,dim\n1,4\n", {"target": "t.json"}, "must end in .csv or .parquet"),
        ('rows,dim\n"1,5",4\n', {}, "row 1: rows must be a whole number"),
        ("rows,dim,lookup\n5,4,bag\n", {}, "row 1: lookup must be one of pooled, weighted, seq"),
        ("name,rows,dim,dtype\na,9,4,int8\n", {}, "no embedding table (left out: tables of data"),
    ],
)
def test_files_and_options_that_cannot_be_used_are_refused(text, options, said):
    """A refusal is one sentence, which names the row or the option."""
    path = source(text)
    assert said in refusal(lambda: imported(path, **options))


def test_the_format_follows_from_the_name_or_is_given():
    """No Python module is run unless a function of it is named."""
    text = "rows,dim\n5,4\n"
    assert len(tables_of(source(text, "mine.TXT"))) == 1
    assert len(tables_of(source(text, "mine.data"), format="csv")) == 1
    assert "module:function" in refusal(lambda: imported(source(text, "my.config")))
    assert "is for CSV" in refusal(lambda: imported("my_model:build", columns={"rows": "x"}))
    only_module = module("raise AssertionError('was run')").partition(":")[0]
    refusal(lambda: imported(only_module))


def test_parquet_is_read_like_csv():
    """Parquet columns have the same synonyms; cells may be empty or lists of factors."""
    names = {"feature": ["a", None], "num_embeddings": [10, 20], "dim": [4, 8]}
    pd.DataFrame({**names, "nnz": [[1, 20], None]}).to_parquet("mine.parquet")
    expected = Table("a", 10, 4, (1.0, 20.0)), Table("table_1", 20, 8, (1.0,))
    assert tables_of("mine.parquet") == expected


def test_what_is_left_out_or_changed_is_named_as_in_the_file():
    """A table that is left out keeps its number, so that notes name the tables of the file."""
    outcome = imported(source("rows,dim,dtype\n9,4,int8\n9,6,fp32\n"))
    assert [table.name for table in parse_tables(outcome.content, "t.csv")] == ["table_1"]
    assert "int8" in outcome.left_out[0]
    assert outcome.left_out[0].endswith(": table_0")
    assert outcome.changed[0].endswith(": table_1 6 to 8")


ROWS = st.tuples(
    st.text(max_size=6)
    | st.sampled_from(["a.b", "type", "forward", "", "\ufeff", "table_1", *TEXTS]),
    st.integers(1, 10**12),
    st.integers(1, 2**16),
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=3),
    st.sampled_from(["fp32", "FP16", "bfloat16"]),
    st.sampled_from(["pooled", "weighted", "sequence"]),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=6), st.sampled_from(["t.csv", "t.parquet"]))
def test_what_is_imported_is_read_back_as_it_was(rows, target):
    """Imported files have names that torch takes, and are imported again without a change."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["name", "rows", "dim", "pooling_factor", "dtype", "lookup"])
    for name, rows_number, dim, factors, dtype, lookup in rows:
        writer.writerow([name, rows_number, dim, "|".join(map(repr, factors)), dtype, lookup])
    Path("mine.csv").write_bytes(text.getvalue().encode("utf-8", "replace"))
    outcome = imported("mine.csv", target)
    tables = parse_tables(outcome.content, target)
    assert [(table.rows, table.dim, table.pooling_factors, table.lookup) for table in tables] == [
        (rows, -(-dim // 4) * 4, tuple(pooled), kind) for _, rows, dim, pooled, _, kind in rows
    ]
    names = [table.name for table in tables]
    assert all(name.isprintable() and name[0] not in "=+-@#" for name in names)
    EmbeddingBagCollection(  # torch takes every name
        [EmbeddingBagConfig(name=name, num_embeddings=4, embedding_dim=4) for name in names]
    )
    Path(target).write_bytes(outcome.content)
    again = imported(target, target)
    assert again.content == outcome.content
    assert not again.changed


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


def test_every_collection_of_a_model_is_read_in_order_and_planned_alike():
    """The imported tables have the options and estimates of the model's own."""
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


def test_a_list_of_configs_will_do():
    """A function may return configurations in place of a model; they do not say weights."""
    outcome = imported(module(MODEL + "def build(): return [bag('a', 10, 8), sequence('b')]"))
    tables = parse_tables(outcome.content, "t.csv")
    assert [table.lookup for table in tables] == ["pooled", "sequence"]
    assert any("without weights" in text for text in outcome.assumed)


@pytest.mark.parametrize(
    ("made", "left_out"),
    [
        (
            "model(x=EmbeddingTower(bags(bag('a', 10, 8)), nn.Linear(1, 1)))",
            "all of EmbeddingTower but",
        ),
        ("optimized(bags(bag('a', 10, 8)))", "the kinds of optimizers"),
        ("bags(bag('a', 10, 8, use_virtual_table=True))", "use_virtual_table of tables"),
        ("[bag('a', 10, 8, total_num_buckets=5)]", "total_num_buckets of tables"),
    ],
)
def test_what_a_file_of_tables_cannot_hold_is_listed(made, left_out):
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
        ("import nothing_like_that", "ModuleNotFoundError"),
        ("build = 5", "TypeError: build is no function"),
        ("other = 5", "AttributeError"),
        ("def build(): return 5", "not int"),
        ("def build(): return []", "holds no embedding table"),
        ("from torch import nn\ndef build(): return nn.Embedding(5, 4)", "left out: nn.Embedding"),
    ],
)
def test_what_goes_wrong_in_a_users_function_is_one_sentence(code, said):
    """Any error of a user's module is a refusal, and the search path stays as it was."""
    path_before, path = list(sys.path), module(code)
    assert said in refusal(lambda: imported(path))
    assert sys.path == path_before

"""Tables from other people's files, configs and models; what was assumed, changed and left out."""

import csv
import io
import json
import sys
import textwrap
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contract.inventory import Imported, ImportRequest
from harness.model.errors import UsageError
from planners.embedding.importing.importer import IMPORTING, read
from planners.embedding.tables import Table, parse_tables, read_tables

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def source(tmp_path):
    def write(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


def imported(source: str, target: str = "tables.csv", **options) -> Imported:
    return read(ImportRequest(source, target, **options))


def tables_of(source: str, target: str = "tables.csv", **options) -> tuple[Table, ...]:
    return parse_tables(imported(source, target, **options).content, target)


def refusal(source: str, **options) -> str:
    with pytest.raises(UsageError) as caught:
        imported(source, **options)
    said = str(caught.value)
    assert said.isprintable()
    assert said.endswith((".", "?"))
    return said


# Columns of any usual name


@pytest.mark.parametrize(
    "header",
    [
        "name,rows,dim,pooling_factor,dtype",
        "Table Name,Num Embeddings,Embedding-Dim,AVG_POOLING,Data Type",
        "feature,hash_size,emb_dim,mean_length,precision",
        "table;cardinality;width;hotness;dtype",
        "table\tnum_rows\tembedding_size\tnnz\tdata_type",
    ],
)
def test_columns_are_known_by_their_usual_names(source, header):
    delimiter = next(letter for letter in ",;\t" if letter in header)
    row = delimiter.join(["user", "1000", "64", "1|10", "FP16"])
    path = source("mine.csv", f"# theirs\n{header}\n{row}\n\n")
    assert tables_of(path) == (Table("user", 1000, 64, (1.0, 10.0), "fp16"),)


@pytest.mark.parametrize(
    ("text", "rows"), [('"12,000,000"', 12_000_000), ("1.2e7", 12_000_000), ("1000.0", 1000)]
)
def test_numbers_may_be_written_as_people_write_them(source, text, rows):
    assert tables_of(source("mine.csv", f"rows,dim\n{text},16\n"))[0].rows == rows


def test_what_no_column_says_is_assumed_and_told(source):
    path = source("mine.csv", "rows,dim\n1000,16\n50,8\n")
    found = imported(path)
    assert parse_tables(found.content, "t.csv") == (
        Table("table_0", 1000, 16, (1.0,)),
        Table("table_1", 50, 8, (1.0,)),
    )
    assert [text.split(" where")[0] for text in found.assumed] == ["pooling_factor 1", "dtype fp32"]
    other = tables_of(path, assumed={"pooling_factor": "20", "dtype": "bf16"})
    assert {(table.pooling_factors, table.dtype) for table in other} == {((20.0,), "bf16")}


def test_an_empty_cell_is_told_with_its_table(source):
    found = imported(source("mine.csv", "name,rows,dim,pooling\na,9,4,2\nb,9,4,\n"))
    assert any(
        text.startswith("pooling_factor 1") and text.endswith(": b") for text in found.assumed
    )


def test_a_column_can_be_named_and_its_value_be_given(source):
    path = source("mine.csv", "who,how_many\nuser,1000\n")
    (table,) = tables_of(path, columns={"rows": "how_many", "name": "who"}, assumed={"dim": "32"})
    assert (table.name, table.rows, table.dim) == ("user", 1000, 32)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", {}, "lists no table"),
        ("rows,dim\n", {}, "lists no table"),
        ("a,b\n1,2\n", {}, "no column is called like rows"),
        ("a,b\n1,2\n", {}, "the columns are a, b"),
        ("hash_size,num_rows,dim\n1,2,4\n", {}, "any of the columns hash_size, num_rows"),
        ("rows,dim\n1,4\n", {"columns": {"rows": "row"}}, "Unknown column of"),
        ("rows,dim\n1,4\n", {"columns": {"row": "rows"}}, "Unknown field 'row'"),
        ("rows,dim\n1,4\n", {"assumed": {"name": "x"}}, "cannot be assumed"),
        ("rows,dim\n1,4\n", {"format": "xml"}, "Unknown format 'xml'"),
        ("rows,dim\nmany,4\n", {}, "row 1: rows must be a whole number, not 'many'"),
        ("rows,dim\n1.5,4\n", {}, "row 1: rows must be a whole number"),
        ("rows,dim\n1_000,4\n", {}, "row 1: rows must be a whole number"),
        ("rows,dim\ninf,4\n", {}, "row 1: rows must be a whole number"),
        ('rows,dim\n"1,5",4\n', {}, "row 1: rows must be a whole number"),
        ("rows,dim\n,4\n", {}, "row 1: rows is missing"),
        ("rows,dim\n5,4\n0,4\n", {}, "row 2: rows must be a whole number from 1"),
        ("rows,dim\n5,-4\n", {}, "row 1: dim must be a whole number from 1"),
        (f"rows,dim\n{10**13},4\n", {}, "row 1: rows must be"),
        ("rows,dim\n" + "9" * 400 + ",4\n", {}, "row 1: rows must be"),
        ("rows,dim,nnz\n5,4,0\n", {}, "row 1: a pooling factor must be a positive number"),
        ("rows,dim,nnz\n5,4,nan\n", {}, "row 1: pooling_factor must be"),
        ("rows,dim\n5,4,7\n", {}, "row 1: it must have at most 2 cells"),
        (b"\xff\xfe\x00", {}, "must be UTF-8"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(source, text, options, said):
    assert said in refusal(source("mine.csv", text), **options)


def test_parquet_is_read_like_csv(tmp_path):
    path = tmp_path / "mine.parquet"
    pd.DataFrame(
        {"feature": ["a", None], "num_embeddings": [10, 20], "dim": [4, 8], "nnz": [1.5, None]}
    ).to_parquet(path)
    assert tables_of(str(path)) == (
        Table("a", 10, 4, (1.5,)),
        Table("table_1", 20, 8, (1.0,)),
    )


def test_a_list_in_a_parquet_cell_is_a_pooling_factor_per_feature(tmp_path):
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"rows": [10], "dim": [4], "nnz": [[1, 20]]}).to_parquet(path)
    assert tables_of(str(path))[0].pooling_factors == (1.0, 20.0)


def test_tables_of_other_data_types_are_left_out_and_told(source):
    found = imported(source("mine.csv", "name,rows,dim,dtype\na,9,4,int8\nb,9,4,fp32\n"))
    assert [table.name for table in parse_tables(found.content, "t.csv")] == ["b"]
    assert any("int8" in text and text.endswith(": a") for text in found.left_out)


def test_where_nothing_is_left_that_is_said(source):
    said = refusal(source("mine.csv", "name,rows,dim,dtype\na,9,4,int8\n"))
    assert "holds no embedding table (left out: tables of data type int8" in said


# What is written can be read


HOSTILE = (
    *("a\nb", "\x00\x1b[31m", "#x", "=1+1", "@SUM(1)", "-1+1", "a.b", "type", "forward", " ", ""),
    *("\u202eabc", "a,b", 'a"b', "'", "日本語", "n" * 3000, "x\r\ny", "\ufeff", "\xa0a", "table_1"),
)
names = st.one_of(st.text(max_size=6), st.sampled_from(HOSTILE))
rows_of_files = st.lists(
    st.tuples(
        names,
        st.integers(1, 10**12),
        st.integers(1, 2**16),
        st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=3),
        st.sampled_from(["fp32", "FP16", "bfloat16"]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=15, deadline=None)
@given(rows_of_files, st.sampled_from(["t.csv", "t.parquet"]))
def test_what_is_imported_is_read_back_as_it_was(tmp_path_factory, rows, target):
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["name", "rows", "dim", "pooling_factor", "dtype"])
    for name, *numbers, factors, dtype in rows:
        writer.writerow([name, *numbers, "|".join(map(repr, factors)), dtype])
    folder = tmp_path_factory.mktemp("files")
    path = folder / "mine.csv"
    path.write_bytes(text.getvalue().encode("utf-8", "replace"))
    found = imported(str(path), target)
    (folder / target).write_bytes(found.content)
    read_back = read_tables(folder / target)
    assert [table.rows for table in read_back] == [row[1] for row in rows]
    assert [table.dim for table in read_back] == [-(-row[2] // 4) * 4 for row in rows]
    assert [table.pooling_factors for table in read_back] == [tuple(row[3]) for row in rows]
    assert len({table.name for table in read_back}) == len(rows)
    assert all(table.name.isprintable() and table.name[0] not in "=+-@#" for table in read_back)
    again = imported(str(folder / target), target)
    assert again.content == found.content
    assert not again.changed


def test_torch_takes_every_name_that_is_written(source):
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(
        [["name", "rows", "dim"], *([name, 4, 4] for name in HOSTILE)]
    )
    tables = tables_of(source("mine.csv", text.getvalue()))
    assert len(tables) == len(HOSTILE)
    EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(name=t.name, num_embeddings=t.rows, embedding_dim=t.dim)
            for t in tables
        ]
    )


# TorchEasyRec


SIZED = "embedding_dim: 8 num_buckets: 5"


def feature(kind: str, fields: str) -> str:
    return f"feature_configs {{ {kind} {{ {fields} }} }}\n"


def named(fields: str) -> str:
    return feature("id_feature", f"feature_name: 'a' {fields}")


def one_table(source, kind: str, fields: str) -> Table:
    text = feature(kind, f'feature_name: "a" embedding_dim: 8 {fields}')
    (table,) = tables_of(source("my.config", text))
    return table


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ("num_buckets: 7", 7),
        ("hash_bucket_size: 0x10", 16),
        ("hash_bucket_size: 9 num_buckets: 7", 9),
        ("num_buckets: 7 zch { zch_size: 40 lfu {} }", 40),
        ("dynamicemb { max_capacity: 50 }", 50),
        ('vocab_list: ["x", "y"]', 4),
        ('vocab_list: "x" vocab_list: "y" vocab_list: "z"', 5),
        ('vocab_list: ["x", "y"] default_bucketize_value: 0', 2),
        ('vocab_dict [{ key: "x" value: 2 }, { key: "y" value: 8 }]', 9),
        ('vocab_dict { key: "x" value: 3 }', 4),
    ],
)
@pytest.mark.parametrize("kind", ["id_feature", "combo_feature", "sequence_id_feature"])
def test_rows_are_counted_as_torcheasyrec_counts_them(source, kind, fields, rows):
    assert one_table(source, kind, fields).rows == rows


@pytest.mark.parametrize(
    "kind",
    ["raw_feature", "lookup_feature", "match_feature", "sequence_expr_feature"],
)
def test_numbers_have_a_table_where_they_are_cut_into_ranges(source, kind):
    table = one_table(source, kind, "boundaries: [0.1, 1e3, -5]")
    assert (table.name, table.rows) == ("a_emb", 4)
    said = refusal(source("my.config", feature(kind, 'feature_name: "a" embedding_dim: 8')))
    assert "features of numbers, which look up no table: a" in said


@pytest.mark.parametrize(
    ("kind", "fields", "factor", "is_told"),
    [
        ("id_feature", "", 1.0, True),
        ("id_feature", "value_dim: 3", 3.0, False),
        ("raw_feature", "boundaries: 1", 1.0, False),
        ("sequence_id_feature", "sequence_length: 50", 50.0, True),
        ("sequence_id_feature", "sequence_length: 50 value_dim: 2", 100.0, True),
        ("sequence_id_feature", "", 1.0, True),
    ],
)
def test_pooling_factors_are_what_the_config_says_or_told(source, kind, fields, factor, is_told):
    sizes = "" if "boundaries" in fields else "num_buckets: 5"
    text = feature(kind, f'feature_name: "a" embedding_dim: 8 {sizes} {fields}')
    found = imported(source("my.config", text))
    assert parse_tables(found.content, "t.csv")[0].pooling_factors == (factor,)
    assert bool(found.assumed) is is_told


def test_an_assumed_pooling_factor_is_for_what_the_config_leaves_open(source):
    text = feature("id_feature", 'feature_name: "a" num_buckets: 5 embedding_dim: 8') + feature(
        "id_feature", 'feature_name: "b" num_buckets: 5 embedding_dim: 8 value_dim: 2'
    )
    tables = tables_of(source("my.config", text), assumed={"pooling_factor": "7.5"})
    assert [table.pooling_factors for table in tables] == [(7.5,), (2.0,)]


def test_features_share_the_table_of_an_embedding_name_also_across(source):
    text = "".join(
        feature("id_feature", f'feature_name: "{name}" embedding_name: "{table}" {SIZED}')
        for name, table in (("a", "b_emb"), ("b", "a_emb"), ("c", "b_emb"))
    )
    tables = tables_of(source("my.config", text))
    assert [(table.name, table.features) for table in tables] == [("b_emb", 2), ("a_emb", 1)]


def test_features_that_share_a_table_but_not_its_size_are_refused(source):
    text = "\n".join(
        feature("id_feature", f'feature_name: "{name}" embedding_name: "t" {sized}')
        for name, sized in (("a", SIZED), ("b", SIZED.replace("5", "6")))
    )
    said = refusal(source("my.config", text))
    assert "line 3: features 'a' and 'b' share table 't', but the rows of one is 5" in said


def test_only_features_in_a_group_have_a_table_and_wide_groups_one_of_their_own(source):
    features = "".join(
        feature("id_feature", f'feature_name: "{name}" num_buckets: 5 embedding_dim: 16')
        for name in "abc"
    )
    groups = """
    model_config {
        feature_groups { group_name: "deep" feature_names: ["a", "b"] group_type: DEEP }
        feature_groups { group_name: "wide" feature_names: "a" group_type: WIDE }
        feature_groups { group_name: "own" feature_names: "b" embedding_name_suffix: "own" }
        WIDTH
    }
    """
    for width, dim in (
        ("", 4),
        ("wide_and_deep { wide_embedding_dim: 8 }", 8),
        ("xdeepfm { }", 16),  # upstream's default of that model
    ):
        found = imported(source("my.config", features + groups.replace("WIDTH", width)))
        tables = parse_tables(found.content, "t.csv")
        assert [(table.name, table.dim) for table in tables] == [
            ("a_emb", 16), ("a_emb_wide", dim), ("b_emb", 16), ("b_emb_own", 16)
        ]  # fmt: skip
        assert any("no feature group" in text and text.endswith(": c") for text in found.left_out)


def test_the_example_says_all_that_it_has_to(tmp_path):
    found = imported(str(EXAMPLES / "model.config"))
    tables = {table.name: table for table in parse_tables(found.content, "t.csv")}
    assert tables["article_emb"].pooling_factors == (1.0, 50.0)
    assert tables["seen__shop_emb"].rows == 500_000
    assert tables["tags_emb"].dtype == "fp16"
    left_out = " ".join(found.left_out)
    for word in ("rating, price_ratio", "second copy", "embedding_constraints", "zch"):
        assert word in left_out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no feature_configs"),
        ("model_dir: 'x'", "has no feature_configs"),
        ("feature_configs { }", "must hold one feature"),
        ("feature_configs: 5", "line 1: '5': Expected"),
        (feature("id_feature", "num_buckets: 5"), "feature_name is missing"),
        (feature("id_feature", "feature_name: 'a' num_buckets: 5"), "no embedding_dim"),
        (feature("id_feature", "feature_name: 'a' embedding_dim: 8"), "features without a size"),
        (feature("id_feature", "feature_name: 'a' vocab_file: 'v'"), "only their vocab_file tells"),
        (feature("id_feature", "feature_name: 'a' zch { }"), "zch has no zch_size"),
        (feature("new_feature", "feature_name: 'a'"), "not known here (new_feature)"),
        (named("embedding_dim: -8 num_buckets: 5"), "out of range: -8"),
        (named("embedding_dim: 8 num_buckets: 1e9"), "'1e9'"),
        (named("embedding_dim: 8 num_buckets: 'x'"), "'x'"),
        (named(f"embedding_dim: 8 num_buckets: {10**13}"), "rows must be"),
        (named(f"embedding_dim: 8 num_buckets: {10**20}"), "out of range"),
        (named(SIZED) * 2, "there already, in line 1"),
        (named(f"{SIZED} data_type: 'INT8'"), "data type INT8"),
        (named("stub_type: true"), "stub_type"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_in_one_sentence(source, text, said):
    assert said in refusal(source("my.config", text))


def test_rows_and_dim_can_be_assumed_for_features_without(source):
    text = feature("id_feature", 'feature_name: "a"') + feature("raw_feature", 'feature_name: "b"')
    found = imported(source("my.config", text), assumed={"rows": "1e6", "dim": "32"})
    (table,) = parse_tables(found.content, "t.csv")
    assert (table.name, table.rows, table.dim) == ("a_emb", 1_000_000, 32)
    assert any("1,000,000 rows" in text for text in found.assumed)


def test_the_json_form_gives_the_same(source):
    held = {
        "featureConfigs": [
            {
                "idFeature": {
                    "featureName": "a",
                    "embeddingDim": 8,
                    "vocabDict": {"x": "2", "y": "6"},
                }
            },
            {
                "sequenceFeature": {
                    "sequenceName": "s",
                    "sequenceLength": 9,
                    "features": [
                        {"idFeature": {"featureName": "b", "numBuckets": "5", "embeddingDim": 8}}
                    ],
                }
            },
        ]
    }
    text = """
    feature_configs { id_feature { feature_name: "a" embedding_dim: 8
        vocab_dict [{key: "x" value: 2}, {key: "y" value: 6}] } }
    feature_configs { sequence_feature { sequence_name: "s" sequence_length: 9
        features { id_feature { feature_name: "b" num_buckets: 5 embedding_dim: 8 } } } }
    """
    expected = (Table("a_emb", 7, 8, (1.0,)), Table("s__b_emb", 5, 8, (9.0,)))
    assert tables_of(source("my.json", json.dumps(held))) == expected
    assert tables_of(source("my.config", text)) == expected


@pytest.mark.parametrize("kind", ["number", "list", "text"])
def test_any_json_is_read_or_refused(source, kind):
    held = {"number": 5, "list": [[1]], "text": "x"}[kind]
    refusal(source("my.json", json.dumps({"feature_configs": held})))


# Models


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = iter(range(100))
    made = []

    def write(code: str) -> str:
        name = f"made_up_model_{next(numbers)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        made.append(name)
        return f"{name}:build"

    yield write
    for name in made:
        sys.modules.pop(name, None)


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
        Table("c", 30, 16, (3.0,)),
    )
    assert [text.split(": ")[1] for text in found.left_out] == ["towers.0.plain"]


def test_a_list_of_configs_will_do_and_a_collection_itself(module):
    assert len(tables_of(module(MODEL + "def build(): return [bag('a', 10, 8)]"))) == 1
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
    assert [table.name for table in tables_of(path)] == ["a"]


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


def test_no_code_is_run_unless_a_function_is_named(module, tmp_path):
    module("raise AssertionError('was run')")
    refusal("made_up_model_0.py")
    refusal("made_up_model_0")
    assert "must be module:function" in refusal("made_up_model_0.py", format="model")


# All together


def test_the_kind_is_told_by_name_or_said(source):
    text = "rows,dim\n5,4\n"
    assert len(tables_of(source("mine.TXT", text))) == 1
    assert len(tables_of(source("mine.data", text), format="csv")) == 1
    assert "cannot be told from its name" in refusal(source("mine.data", text))
    assert "--column is for CSV" in refusal(
        source("my.config", feature("id_feature", "feature_name: 'a'")), columns={"rows": "x"}
    )


def test_a_target_that_is_no_file_of_tables_is_refused(source):
    with pytest.raises(UsageError, match=r"must end in .csv or .parquet"):
        imported(source("mine.csv", "rows,dim\n5,4\n"), "tables.json")


def test_the_family_offers_what_is_tested_here():
    assert set(IMPORTING.formats) == {"csv", "parquet", "tzrec", "model"}
    assert IMPORTING.suffixes == (".csv", ".parquet")

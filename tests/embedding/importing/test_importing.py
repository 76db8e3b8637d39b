"""Tables are imported from any supported file, with notes on assumptions, changes and omissions."""

import csv
import io

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from imported import imported, refusal, tables_of
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planners.embedding.tables.files import Table, parse_tables

HOSTILE = (
    *("a\nb", "\x00\x1b[31m", "#x", "=1+1", "@SUM(1)", "-1+1", "a.b", "type", "forward", " ", ""),
    *("\u202eabc", "a,b", 'a"b', "'", "日本語", "n" * 3000, "x\r\ny", "\ufeff", "\xa0a", "table_1"),
)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("name,rows,dim,pooling_factor,dtype,lookup", "user,1000,64,1|10,fp16,weighted"),
        (
            "Table Name,Num Embeddings,Embedding-Dim,AVG_POOLING,Data Type,Pooling Type",
            "user,1000.0,64,1|10,FP16,weighted",
        ),
        ("feature;hash_size;emb_dim;mean_length;precision", 'user;"1,000";64;1|10;half'),
        ("table\tnum_rows\twidth\tnnz\tdata_type\tlookup", "user\t1e3\t64\t1|10\tfloat16\tMEAN"),
        (
            "embedding,cardinality,embedding_size,hotness,dtype,pooling_mode",
            "user,+01000,64,1|10,torch.float16,none",
        ),
    ],
)
def test_columns_and_values_are_known_by_their_usual_names(source, header, row):
    lookup = {"none": "sequence", "weighted": "weighted"}.get(row.split(",")[-1], "pooled")
    path = source(f"# theirs\n{header}\n{row}\n\n")
    assert tables_of(path) == (Table("user", 1000, 64, (1.0, 10.0), "fp16", lookup),)


def test_missing_columns_and_cells_are_assumed_and_reported(source):
    path = source("rows,dim\n1000,16\n50,8\n")
    assert tables_of(path) == (Table("table_0", 1000, 16, (1.0,)), Table("table_1", 50, 8, (1.0,)))
    reasons = [text.split(" where")[0] for text in imported(path).assumed]
    assert reasons == ["pooling_factor 1", "dtype fp32", "lookup pooled"]
    table, _ = tables_of(path, assumed={"pooling_factor": "20", "lookup": "sequence"})
    assert table == Table("table_0", 1000, 16, (20.0,), lookup="sequence")
    assumed = imported(source("name,rows,dim,pooling\na,9,4,2\nb,9,4,\n")).assumed
    assert any(text.startswith("pooling_factor 1") and text.endswith(": b") for text in assumed)


def test_a_column_can_be_named_and_its_value_be_given(source):
    path = source("who,how_many\nuser,1000\n")
    (table,) = tables_of(path, columns={"rows": "how_many", "name": "who"}, assumed={"dim": "32"})
    assert (table.name, table.rows, table.dim) == ("user", 1000, 32)


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
        ("rows,dim\n5,4\n0,4\n", {}, "row 2: rows must be a whole number from 1"),
        ("rows,dim,lookup\n5,4,bag\n", {}, "row 1: lookup must be one of pooled, weighted, seq"),
        ("name,rows,dim,dtype\na,9,4,int8\n", {}, "no embedding table (left out: tables of data"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(source, text, options, said):
    assert said in refusal(source(text), **options)


def test_the_format_follows_from_the_name_or_is_given(source, module):
    text = "rows,dim\n5,4\n"
    assert len(tables_of(source(text, "mine.TXT"))) == 1
    assert len(tables_of(source(text, "mine.data"), format="csv")) == 1
    assert "such as one of TorchEasyRec, by module:function" in refusal(source(text, "my.config"))
    assert "--column is for CSV" in refusal("my_model:build", columns={"rows": "x"})
    refusal(module("raise AssertionError('was run')").partition(":")[0])


def test_parquet_is_read_like_csv(tmp_path):
    path = tmp_path / "mine.parquet"
    pd.DataFrame(
        {"feature": ["a", None], "num_embeddings": [10, 20], "dim": [4, 8], "nnz": [[1, 20], None]}
    ).to_parquet(path)
    assert tables_of(str(path)) == (
        Table("a", 10, 4, (1.0, 20.0)),
        Table("table_1", 20, 8, (1.0,)),
    )


def test_what_is_left_out_or_changed_is_named_as_in_the_file(source):
    """A table that is left out keeps its number, so that notes name the tables of the file."""
    outcome = imported(source("rows,dim,dtype\n9,4,int8\n9,6,fp32\n"))
    assert [table.name for table in parse_tables(outcome.content, "t.csv")] == ["table_1"]
    assert "int8" in outcome.left_out[0]
    assert outcome.left_out[0].endswith(": table_0")
    assert outcome.changed[0].endswith(": table_1 6 to 8")


rows_of_files = st.lists(
    st.tuples(
        st.one_of(st.text(max_size=6), st.sampled_from(HOSTILE)),
        st.integers(1, 10**12),
        st.integers(1, 2**16),
        st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=3),
        st.sampled_from(["fp32", "FP16", "bfloat16"]),
        st.sampled_from(["pooled", "weighted", "sequence"]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=15, deadline=None)
@given(rows_of_files, st.sampled_from(["t.csv", "t.parquet"]))
def test_what_is_imported_is_read_back_as_it_was(tmp_path_factory, rows, target):
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["name", "rows", "dim", "pooling_factor", "dtype", "lookup"])
    for name, rows_number, dim, factors, dtype, lookup in rows:
        writer.writerow([name, rows_number, dim, "|".join(map(repr, factors)), dtype, lookup])
    folder = tmp_path_factory.mktemp("files")
    (folder / "mine.csv").write_bytes(text.getvalue().encode("utf-8", "replace"))
    outcome = imported(str(folder / "mine.csv"), target)
    read_back = parse_tables(outcome.content, target)
    assert [
        (table.rows, table.dim, table.pooling_factors, table.lookup) for table in read_back
    ] == [(rows, -(-dim // 4) * 4, tuple(pooled), kind) for _, rows, dim, pooled, _, kind in rows]
    names = [table.name for table in read_back]
    assert all(name.isprintable() and name[0] not in "=+-@#" for name in names)
    EmbeddingBagCollection(  # torch takes every name
        [EmbeddingBagConfig(name=name, num_embeddings=4, embedding_dim=4) for name in names]
    )
    (folder / target).write_bytes(outcome.content)
    again = imported(str(folder / target), target)
    assert again.content == outcome.content
    assert not again.changed

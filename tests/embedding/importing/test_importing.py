"""Tables are imported from any supported file, with notes on assumptions, changes and omissions."""

import csv
import io

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from imported import imported, refusal, tables_of

from harness.model.errors import UsageError
from planners.embedding.tables.files import Table, parse_tables, read_tables


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


def test_missing_columns_and_cells_are_assumed_and_reported(source):
    path = source("mine.csv", "rows,dim\n1000,16\n50,8\n")
    found = imported(path)
    assert parse_tables(found.content, "t.csv") == (
        Table("table_0", 1000, 16, (1.0,)),
        Table("table_1", 50, 8, (1.0,)),
    )
    reasons = [text.split(" where")[0] for text in found.assumed]
    assert reasons == ["pooling_factor 1", "dtype fp32", "lookup pooled"]
    assumed = {"pooling_factor": "20", "dtype": "bf16", "lookup": "sequence"}
    other = tables_of(path, assumed=assumed)
    assert {(table.pooling_factors, table.dtype, table.lookup) for table in other} == {
        ((20.0,), "bf16", "sequence")
    }
    found = imported(source("mine.csv", "name,rows,dim,pooling\na,9,4,2\nb,9,4,\n"))
    assert any(
        text.startswith("pooling_factor 1") and text.endswith(": b") for text in found.assumed
    )


@pytest.mark.parametrize(
    ("column", "text", "lookup"),
    [
        ("lookup", "weighted", "weighted"),
        ("Pooling Type", "MEAN", "pooled"),
        ("pooling_mode", "none", "sequence"),
        ("lookup", "Sequence", "sequence"),
    ],
)
def test_kinds_of_lookup_are_known_by_their_usual_names(source, column, text, lookup):
    """A column of pooling types, in torchrec's and fbgemm's words, gives the kinds of lookup."""
    (table,) = tables_of(source("mine.csv", f"rows,dim,{column}\n9,4,{text}\n"))
    assert table.lookup == lookup


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
        ("rows,dim\nmany,4\n", {}, "row 1: rows must be a whole number"),
        ("rows,dim\n1_000,4\n", {}, "row 1: rows must be a whole number"),
        ('rows,dim\n"1,5",4\n', {}, "row 1: rows must be a whole number"),
        ("rows,dim\n,4\n", {}, "row 1: rows is missing"),
        ("rows,dim\n5,4\n0,4\n", {}, "row 2: rows must be a whole number from 1"),
        ("rows,dim\n5,-4\n", {}, "row 1: dim must be a whole number from 1"),
        ("rows,dim\n" + "9" * 400 + ",4\n", {}, "row 1: rows must be"),
        ("rows,dim,nnz\n5,4,0\n", {}, "row 1: pooling_factor must be a positive number"),
        ("rows,dim,nnz\n5,4,nan\n", {}, "row 1: pooling_factor must be"),
        ("rows,dim,lookup\n5,4,bag\n", {}, "row 1: lookup must be one of pooled, weighted, seq"),
        ("rows,dim\n5,4,7\n", {}, "row 1: it must have at most 2 cells"),
        (b"\xff\xfe\x00", {}, "must be UTF-8"),
        ("name,rows,dim,dtype\na,9,4,int8\n", {}, "no embedding table (left out: tables of data"),
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
    pd.DataFrame({"rows": [10], "dim": [4], "nnz": [[1, 20]]}).to_parquet(path)
    assert tables_of(str(path))[0].pooling_factors == (1.0, 20.0)


def test_tables_of_other_data_types_are_left_out_and_reported(source):
    found = imported(source("mine.csv", "name,rows,dim,dtype\na,9,4,int8\nb,9,4,fp32\n"))
    assert [table.name for table in parse_tables(found.content, "t.csv")] == ["b"]
    assert any("int8" in text and text.endswith(": a") for text in found.left_out)


def test_a_table_without_a_name_has_one_number_in_notes_and_in_the_file(source):
    """A table that is left out keeps its number, so that notes name the tables of the file."""
    found = imported(source("mine.csv", "rows,dim,dtype\n9,4,int8\n9,6,fp32\n"))
    assert [table.name for table in parse_tables(found.content, "t.csv")] == ["table_1"]
    assert found.left_out[0].endswith(": table_0")
    assert found.changed[0].endswith(": table_1 6 to 8")


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
    for name, *numbers, factors, dtype, lookup in rows:
        writer.writerow([name, *numbers, "|".join(map(repr, factors)), dtype, lookup])
    folder = tmp_path_factory.mktemp("files")
    path = folder / "mine.csv"
    path.write_bytes(text.getvalue().encode("utf-8", "replace"))
    found = imported(str(path), target)
    (folder / target).write_bytes(found.content)
    read_back = read_tables(folder / target)
    assert [table.rows for table in read_back] == [row[1] for row in rows]
    assert [table.dim for table in read_back] == [-(-row[2] // 4) * 4 for row in rows]
    assert [table.pooling_factors for table in read_back] == [tuple(row[3]) for row in rows]
    assert [table.lookup for table in read_back] == [row[5] for row in rows]
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


def test_no_code_is_run_unless_a_function_is_named(module, tmp_path):
    module("raise AssertionError('was run')")
    refusal("made_up_model_0.py")
    refusal("made_up_model_0")
    assert "must be module:function" in refusal("made_up_model_0.py", format="model")


def test_the_format_follows_from_the_name_or_is_given(source):
    text = "rows,dim\n5,4\n"
    assert len(tables_of(source("mine.TXT", text))) == 1
    assert len(tables_of(source("mine.data", text), format="csv")) == 1
    assert "cannot be told from its name" in refusal(source("mine.data", text))
    assert "--column is for CSV" in refusal("my_model:build", columns={"rows": "x"})
    with pytest.raises(UsageError, match=r"must end in .csv or .parquet"):
        imported(source("mine.csv", text), "tables.json")


@pytest.mark.parametrize("name", ["my.config", "my.pbtxt", "my.json"])
def test_a_configuration_of_torcheasyrec_is_refused_with_the_way_to_import_its_model(source, name):
    """The error for a file of an unknown kind says how TorchEasyRec's models are imported."""
    said = refusal(source(name, "feature_configs { }"))
    assert "import a model, such as one of TorchEasyRec, by module:function" in said

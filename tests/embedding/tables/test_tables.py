"""Files of tables are read, or refused in one sentence."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from harness.model.errors import UsageError
from planners.embedding.tables.files import Table, content_of, parse_tables, read_tables

MINIMAL = "rows,dim,pooling_factor\n"
ALL = "name,rows,dim,pooling_factor,dtype,lookup\n"

tables_of_files = st.lists(
    st.builds(
        Table,
        name=st.text(st.characters(categories=["L", "N"], include_characters="_-"), min_size=1),
        rows=st.integers(1, 10**12),
        dim=st.integers(1, 2**14).map(lambda quarter: 4 * quarter),
        pooling_factors=st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=3).map(tuple),
        dtype=st.sampled_from(["fp32", "fp16", "bf16"]),
        lookup=st.sampled_from(["pooled", "weighted", "sequence"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda table: table.name,
)


def parquet(path: Path, **columns: list[object]) -> Path:
    pd.DataFrame({"rows": [100], "dim": [8], "pooling_factor": [1]} | columns).to_parquet(path)
    return path


def error_of(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_tables(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert text.endswith(".")
    assert "\n" not in text
    return text.removeprefix(str(path))


@pytest.mark.parametrize(
    ("content", "tables"),
    [
        (
            "# exported on Monday\n\nowner,name, rows ,dim,dtype,pooling_factor\n"
            "ads,users,100,8,fp16,1|10\n# a remark\n\n,,,,,\nads,items#1, 1e6 ,16.0,,2.5\n",
            [
                Table("users", 100, 8, (1.0, 10.0), "fp16"),
                Table("items#1", 10**6, 16, (2.5,), "fp32"),
            ],
        ),
        ("\ufeff" + MINIMAL + "100,8,1,,\n", [Table("table_0", 100, 8, (1.0,))]),
        (
            "# a comment\r\nname,rows,dim,pooling_factor\r\ntwo\u2028parts,100,8,1\r\n",
            [Table("two\u2028parts", 100, 8, (1.0,))],
        ),
    ],
    ids=["comments", "bom", "crlf"],
)
def test_what_a_csv_file_may_hold(tmp_path: Path, content: str, tables: list[Table]) -> None:
    """Comments, empty rows, other columns and any ends of lines are allowed."""
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode())
    assert read_tables(path) == tuple(tables)


@settings(deadline=None, max_examples=15)
@given(tables=tables_of_files)
@pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
def test_what_is_written_is_read(tables: list[Table], file: str) -> None:
    """CSV and Parquet keep all that a table has."""
    assert parse_tables(content_of(tables, file), file) == tuple(tables)


def test_parquet_may_hold_numbers_and_empty_optional_cells(tmp_path: Path) -> None:
    """Empty cells have the defaults."""
    path = parquet(tmp_path / "t.parquet", pooling_factor=[1.5], name=[None], dtype=[None])
    assert read_tables(path) == (Table("table_0", 100, 8, (1.5,)),)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *((name, MINIMAL, ".csv or .parquet") for name in ("tables", "t.csv.gz")),
        ("t.csv", b"rows,dim,pooling_factor\n\xff\xfe,8,1\n", "must be UTF-8 text"),
        ("t.csv", MINIMAL + f"{'1' * 200_000},8,1\n", "larger than field limit"),
        ("t.parquet", MINIMAL + "100,8,1\n", "must be a Parquet file"),
        *(("t.csv", text, "lists no table") for text in ("# a comment\n", MINIMAL + "\n,,\n")),
        ("t.csv", "rows,dim,pooling_factor,rows\n1,8,1,1\n", "'rows' must be there once"),
        ("t.csv", "rows,dim\n1,8\n", "column 'pooling_factor' is missing"),
        ("t.csv", MINIMAL + "100,8,1\n1,000,8,1\n", "row 2: it must have at most 3 cells"),
        ("t.csv", ALL + "table_1,1,8,1,,\n,1,8,1,,\n", "row 2: name must be unique, but row 1"),
    ],
)
def test_what_is_no_file_of_tables_is_refused(tmp_path, name, content, said) -> None:
    """One sentence names the file and the fault."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert said in error_of(path)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("rows", ("many", "10.5", "0", "-3", "nan", "inf", "1e13", "0x10", "")),
        ("dim", ("wide", "0", "-4", "6", "8.5", "nan", "65540", "")),
        ("pooling_factor", ("often", "0", "-1", "nan", "inf", "1|", "1|0", "1;10", "|", "")),
        ("dtype", ("fp64", "float32", "FP16")),
        ("lookup", ("bag",)),
        ("name", ("user.id",)),
    ],
)
def test_a_bad_cell_is_named_by_row_and_field(tmp_path: Path, field: str, values) -> None:
    """The sentence ends with the value."""
    fields = ALL.strip().split(",")
    cells = dict(zip(fields, ("t", "100", "8", "1", "fp32", "pooled"), strict=True))
    for value in values:
        path = tmp_path / "t.csv"
        rows = [",".join(row.values()) for row in (cells, cells | {"name": "u", field: value})]
        path.write_text("\n".join(["# a comment", ALL.strip(), *rows]))
        said = error_of(path)
        assert said.startswith(f", row 2: {field} ")
        assert said.endswith(f"not '{value}'.") if value else "is missing" in said


def test_bad_parquet_cells_are_named(tmp_path: Path) -> None:
    """Missing values and lists of factors are faults."""
    path = tmp_path / "t.parquet"
    parquet(path, rows=[1, None], dim=[8, 8], pooling_factor=[1, 1])
    assert error_of(path).startswith(", row 2: rows is missing")
    path = parquet(path, pooling_factor=[[1, 10]])
    assert error_of(path).startswith(", row 1: pooling_factor must be a positive number")

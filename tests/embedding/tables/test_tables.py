"""Files of tables are read, or refused in one sentence."""

from pathlib import Path

import pandas as pd
import pytest

from harness.model.errors import UsageError
from planners.embedding.tables.files import Table, read_tables

MINIMAL = "rows,dim,pooling_factor\n"
ALL = "name,rows,dim,pooling_factor,dtype,lookup\n"


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


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"pooling_factor": [1.5], "name": [None], "dtype": [None]}, ""),  # these have defaults
        ({"rows": [None]}, ", row 1: rows is missing"),
        ({"pooling_factor": [[1, 10]]}, ", row 1: pooling_factor must be a positive number"),
    ],
)
def test_cells_of_a_parquet_file_are_read_or_named(tmp_path: Path, columns, said) -> None:
    """Missing values without a default and lists of factors are faults."""
    path = tmp_path / "t.parquet"
    pd.DataFrame({"rows": [100], "dim": [8], "pooling_factor": [1]} | columns).to_parquet(path)
    if said:
        assert error_of(path).startswith(said)
    else:
        assert read_tables(path) == (Table("table_0", 100, 8, (1.5,)),)

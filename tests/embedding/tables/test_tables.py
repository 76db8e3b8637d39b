"""Files of tables are read, or refused in one sentence."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from harness.model.errors import UsageError
from planners.embedding.tables.files import Table, is_table_file, read_tables

MINIMAL = "rows,dim,pooling_factor\n"

tables_of_files = st.lists(
    st.builds(
        Table,
        name=st.text(st.characters(categories=["L", "N"], include_characters="_- "), min_size=1)
        .map(str.strip)
        .filter(bool),
        rows=st.integers(1, 10**12),
        dim=st.integers(1, 2**14).map(lambda quarter: 4 * quarter),
        pooling_factors=st.lists(
            st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=3
        ).map(tuple),
        dtype=st.sampled_from(["fp32", "fp16", "bf16"]),
        lookup=st.sampled_from(["pooled", "weighted", "sequence"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda table: table.name,
)


@pytest.fixture
def csv_file(tmp_path: Path):
    def write(content: str | bytes, name: str = "mine.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def parquet_file(tmp_path: Path):
    def write(**columns: list[object]) -> Path:
        path = tmp_path / "mine.parquet"
        pd.DataFrame({"rows": [100], "dim": [8], "pooling_factor": [1]} | columns).to_parquet(path)
        return path

    return write


def error_of(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_tables(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert text.endswith(".")
    assert "\n" not in text
    return text.removeprefix(str(path))


@pytest.mark.parametrize(("dtype", "row_bytes"), [("fp32", 256), ("fp16", 128), ("bf16", 128)])
def test_bytes_are_those_of_the_weights(dtype: str, row_bytes: int) -> None:
    table = Table("t", rows=1000, dim=64, pooling_factors=(1.0, 2.0), dtype=dtype)
    assert table.row_bytes == row_bytes
    assert table.bytes == 1000 * row_bytes
    assert table.features == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.csv", True), ("A.CSV", True), ("b.parquet", True), ("dlrm-856", False), ("csv", False)],
)
def test_a_file_is_told_from_a_name_by_its_suffix(name: str, expected: bool) -> None:
    assert is_table_file(name) is expected


@pytest.mark.parametrize(
    ("content", "tables"),
    [
        (
            MINIMAL + "100,8,1\n200,16,2.5\n",
            [Table("table_0", 100, 8, (1.0,)), Table("table_1", 200, 16, (2.5,))],
        ),
        (MINIMAL + "100,8,1|10\n", [Table("table_0", 100, 8, (1.0, 10.0))]),
        (
            "# exported on Monday\n\nowner,name, rows ,dim,dtype,pooling_factor\n"
            "ads,users,100,8,fp16,1\n# a remark\n\n,,,,,\nads,items#1, 200 ,16,,3\n",
            [Table("users", 100, 8, (1.0,), "fp16"), Table("items#1", 200, 16, (3.0,), "fp32")],
        ),
        ("\ufeff" + MINIMAL + "100,8,1,,\n", [Table("table_0", 100, 8, (1.0,))]),
        (
            "# a comment\r\nname,rows,dim,pooling_factor\r\ntwo\u2028parts,100,8,1\r\n",
            [Table("two\u2028parts", 100, 8, (1.0,))],
        ),
        ("rows,dim,pooling_factor\r100,8,1\r", [Table("table_0", 100, 8, (1.0,))]),
        (MINIMAL + "1e6,16.0,1\n", [Table("table_0", 10**6, 16, (1.0,))]),
        (
            "name,rows,dim,pooling_factor,dtype\n,100,8,1,\nitems,100,8,1,bf16\n",
            [Table("table_0", 100, 8, (1.0,)), Table("items", 100, 8, (1.0,), "bf16")],
        ),
    ],
    ids=["required columns", "features", "comments", "bom", "crlf", "cr", "floats", "defaults"],
)
def test_what_a_csv_file_may_hold(csv_file, content: str, tables: list[Table]) -> None:
    assert read_tables(csv_file(content)) == tuple(tables)


@settings(deadline=None, max_examples=15)
@given(tables=tables_of_files)
def test_what_is_written_is_read(tables: list[Table], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("tables")
    frame = pd.DataFrame(
        {
            "name": [table.name for table in tables],
            "rows": [table.rows for table in tables],
            "dim": [table.dim for table in tables],
            "pooling_factor": ["|".join(map(repr, table.pooling_factors)) for table in tables],
            "dtype": [table.dtype for table in tables],
            "lookup": [table.lookup for table in tables],
        }
    )
    frame.to_csv(folder / "tables.csv", index=False)
    frame.to_parquet(folder / "tables.parquet")
    assert read_tables(folder / "tables.csv") == tuple(tables)
    assert read_tables(str(folder / "tables.parquet")) == tuple(tables)


def test_parquet_may_hold_numbers_and_empty_optional_cells(parquet_file) -> None:
    path = parquet_file(
        name=["users", None],
        rows=[100, 200],
        dim=[8, 8],
        pooling_factor=[1.5, 20],
        dtype=[None, "fp16"],
    )
    assert read_tables(path) == (
        Table("users", 100, 8, (1.5,)),
        Table("table_1", 200, 8, (20.0,), "fp16"),
    )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *((name, None, ".csv or .parquet") for name in ("tables.txt", "tables", "t.csv.gz")),
        *((name, None, "No such file or directory") for name in ("none.csv", "none.parquet")),
        ("binary.csv", b"rows,dim,pooling_factor\n\xff\xfe,8,1\n", "must be UTF-8 text"),
        ("long.csv", MINIMAL + f"{'1' * 200_000},8,1\n", "larger than field limit"),
        ("text.parquet", MINIMAL + "100,8,1\n", "must be a Parquet file"),
        *(
            (name, content, "lists no table")
            for content in ("", "\n\n", "# only a comment\n", MINIMAL, MINIMAL + "\n,,\n")
            for name in (("t.csv", "t.parquet") if not content else ("t.csv",))
        ),
        ("t.csv", "rows,dim,pooling_factor,rows\n100,8,1,100\n", "'rows' must be there once"),
        ("t.csv", MINIMAL + "100,8,1\n1,000,8,1\n", "row 2: it must have at most 3 cells"),
    ],
)
def test_what_is_no_file_of_tables_is_refused(
    tmp_path: Path, csv_file, name: str, content: str | bytes | None, said: str
) -> None:
    assert said in error_of(tmp_path / name if content is None else csv_file(content, name))


def test_folders_truncated_and_empty_parquet_files_are_refused(tmp_path, parquet_file) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert "Is a directory" in error_of(tmp_path / "folder.csv")
    assert "lists no table" in error_of(parquet_file(rows=[], dim=[], pooling_factor=[]))
    path = parquet_file()
    path.write_bytes(path.read_bytes()[:-20])
    assert "must be a Parquet file" in error_of(path)


@pytest.mark.parametrize("column", ["rows", "dim", "pooling_factor"])
def test_a_missing_column_is_named(csv_file, tmp_path: Path, column: str) -> None:
    frame = pd.DataFrame({"rows": [100], "dim": [8], "pooling_factor": [1]}).drop(columns=column)
    frame.to_parquet(tmp_path / "mine.parquet")
    for path in (csv_file(frame.to_csv(index=False)), tmp_path / "mine.parquet"):
        assert error_of(path).startswith(f": column '{column}' is missing; needed are rows, dim")


BAD_CELLS = {
    "rows": ("many", "10.5", "0", "-3", "nan", "inf", "1e13", "0x10"),
    "dim": ("wide", "0", "-4", "6", "8.5", "nan", "65540"),
    "pooling_factor": ("often", "0", "-1", "nan", "inf", "1|", "1|0", "1;10", "|"),
    "dtype": ("fp64", "float32", "FP16"),
    "name": ("user.id",),
}
ALLOWED = {
    "rows": "a whole number from 1 to 1,000,000,000,000",
    "dim": "a multiple of 4 from 4 to 65,536",
    "pooling_factor": "a positive number up to 1,000,000, or one per feature with '|' between them",
    "dtype": "one of fp32, fp16, bf16",
    "name": "without '.', which torch reserves in parameter names",
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in BAD_CELLS.items() for value in values]
)
def test_a_bad_cell_is_named_by_row_and_field_with_what_is_allowed(csv_file, field, value) -> None:
    cells = {"name": "t", "rows": "100", "dim": "8", "pooling_factor": "1", "dtype": "fp32"}
    rows = [",".join(row.values()) for row in (cells, cells | {"name": "u", field: value})]
    path = csv_file("\n".join(["# a comment", ",".join(cells), *rows]))
    assert error_of(path) == f", row 2: {field} must be {ALLOWED[field]}, not '{value}'."


@pytest.mark.parametrize(
    ("row", "field"), [(",8,1", "rows"), ("100", "dim"), ("100,8,", "pooling_factor")]
)
def test_an_empty_cell_is_a_missing_value(csv_file, row: str, field: str) -> None:
    said = f", row 2: {field} is missing; it must be {ALLOWED[field]}."
    assert error_of(csv_file(MINIMAL + f"100,8,1\n{row}\n")) == said


def test_bad_parquet_cells_are_named(parquet_file) -> None:
    path = parquet_file(rows=[100, None], dim=[8, 8], pooling_factor=[1, 1])
    assert error_of(path).startswith(", row 2: rows is missing")
    path = parquet_file(pooling_factor=[[1, 10]])
    assert error_of(path).startswith(", row 1: pooling_factor must be a positive number")


@pytest.mark.parametrize(("first", "second"), [("users", "users"), ("table_1", "")])
def test_names_must_be_unique(csv_file, first: str, second: str) -> None:
    text = f"name,rows,dim,pooling_factor\n{first},100,8,1\n{second},100,8,1\n"
    said = error_of(csv_file(text))
    assert said.startswith(", row 2: name must be unique, but row 1")
    assert f"'{first}'" in said

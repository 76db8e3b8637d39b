from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda table: table.name,
)


def frame_of(tables: list[Table]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": [table.name for table in tables],
            "rows": [table.rows for table in tables],
            "dim": [table.dim for table in tables],
            "pooling_factor": ["|".join(map(repr, table.pooling_factors)) for table in tables],
            "dtype": [table.dtype for table in tables],
        }
    )


@pytest.fixture
def csv_file(tmp_path: Path):
    def write(text: str, name: str = "mine.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def parquet_file(tmp_path: Path):
    def write(columns: dict[str, list[object]]) -> Path:
        path = tmp_path / "mine.parquet"
        pd.DataFrame(columns).to_parquet(path)
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


def test_the_three_required_columns_are_enough(csv_file) -> None:
    assert read_tables(csv_file(MINIMAL + "100,8,1\n200,16,2.5\n")) == (
        Table("table_0", 100, 8, (1.0,)),
        Table("table_1", 200, 16, (2.5,)),
    )


def test_features_that_share_a_table_are_separated_by_a_bar(csv_file) -> None:
    (table,) = read_tables(csv_file(MINIMAL + "100,8,1|10\n"))
    assert table.pooling_factors == (1.0, 10.0)


def test_comments_blank_lines_and_other_columns_are_ignored(csv_file) -> None:
    text = (
        "# exported on Monday\n\nowner,name, rows ,dim,dtype,pooling_factor\n"
        "ads,users,100,8,fp16,1\n# a remark\n\n,,,,,\nads,items#1, 200 ,16,,3\n"
    )
    assert read_tables(csv_file(text)) == (
        Table("users", 100, 8, (1.0,), "fp16"),
        Table("items#1", 200, 16, (3.0,), "fp32"),
    )


def test_a_byte_order_mark_and_trailing_empty_cells_do_no_harm(csv_file) -> None:
    assert read_tables(csv_file("\ufeff" + MINIMAL + "100,8,1,,\n")) == (
        Table("table_0", 100, 8, (1.0,)),
    )


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_other_line_ends_are_read(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "mine.csv"
    lines = ["# a comment", "name,rows,dim,pooling_factor", "two\u2028parts,100,8,1", ""]
    path.write_bytes(newline.join(lines).encode())
    assert read_tables(path) == (Table("two\u2028parts", 100, 8, (1.0,)),)


def test_whole_numbers_may_be_written_as_floats(csv_file) -> None:
    (table,) = read_tables(csv_file(MINIMAL + "1e6,16.0,1\n"))
    assert (table.rows, table.dim) == (1_000_000, 16)


def test_an_empty_optional_cell_takes_the_default(csv_file) -> None:
    text = "name,rows,dim,pooling_factor,dtype\n,100,8,1,\nitems,100,8,1,bf16\n"
    assert [(table.name, table.dtype) for table in read_tables(csv_file(text))] == [
        ("table_0", "fp32"),
        ("items", "bf16"),
    ]


@settings(deadline=None, max_examples=15)
@given(tables=tables_of_files)
def test_what_is_written_is_read(tables: list[Table], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("tables")
    frame_of(tables).to_csv(folder / "tables.csv", index=False)
    frame_of(tables).to_parquet(folder / "tables.parquet")
    assert read_tables(folder / "tables.csv") == tuple(tables)
    assert read_tables(str(folder / "tables.parquet")) == tuple(tables)


def test_parquet_may_hold_pooling_factors_as_numbers(parquet_file) -> None:
    columns = {"rows": [100, 200], "dim": [8, 16], "pooling_factor": [1.5, 20]}
    assert [table.pooling_factors for table in read_tables(parquet_file(columns))] == [
        (1.5,),
        (20.0,),
    ]


def test_an_empty_parquet_cell_is_a_missing_value(parquet_file) -> None:
    columns = {"rows": [100, None], "dim": [8, 8], "pooling_factor": [1, 1]}
    assert error_of(parquet_file(columns)) == (
        ", row 2: rows is missing; it must be a whole number from 1 to 1,000,000,000,000."
    )


def test_an_empty_optional_parquet_cell_takes_the_default(parquet_file) -> None:
    columns = {
        "name": ["users", None],
        "rows": [100, 200],
        "dim": [8, 8],
        "pooling_factor": [1, 1],
        "dtype": [None, "fp16"],
    }
    assert [(table.name, table.dtype) for table in read_tables(parquet_file(columns))] == [
        ("users", "fp32"),
        ("table_1", "fp16"),
    ]


@pytest.mark.parametrize("name", ["tables.txt", "tables", "tables.csv.gz"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    assert error_of(tmp_path / name) == ": a file of tables must end in .csv or .parquet."


@pytest.mark.parametrize("name", ["none.csv", "none.parquet"])
def test_a_file_that_does_not_exist_is_refused(tmp_path: Path, name: str) -> None:
    assert error_of(tmp_path / name) == " cannot be read: No such file or directory."


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert error_of(tmp_path / "folder.csv") == " cannot be read: Is a directory."


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.csv"
    path.write_bytes(b"rows,dim,pooling_factor\n\xff\xfe,8,1\n")
    assert error_of(path) == " cannot be read: a CSV file must be UTF-8 text."


def test_text_that_is_no_csv_is_refused(csv_file) -> None:
    path = csv_file(MINIMAL + f"{'1' * 200_000},8,1\n")
    assert " cannot be read as CSV: field larger than field limit" in error_of(path)


def test_text_that_is_no_parquet_is_refused(csv_file) -> None:
    path = csv_file(MINIMAL + "100,8,1\n", "mine.parquet")
    assert error_of(path) == " cannot be read: it must be a Parquet file."


def test_a_truncated_parquet_file_is_refused(parquet_file) -> None:
    path = parquet_file({"rows": [100], "dim": [8], "pooling_factor": [1]})
    path.write_bytes(path.read_bytes()[:-20])
    assert error_of(path) == " cannot be read: it must be a Parquet file."


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", MINIMAL, MINIMAL + "\n,,\n"])
def test_a_csv_file_without_a_row_is_refused(csv_file, text: str) -> None:
    assert error_of(csv_file(text)) == " lists no table; it must have one row per table."


def test_a_parquet_file_without_a_row_is_refused(tmp_path: Path, parquet_file) -> None:
    said = " lists no table; it must have one row per table."
    assert error_of(parquet_file({"rows": [], "dim": [], "pooling_factor": []})) == said
    (tmp_path / "empty.parquet").touch()
    assert error_of(tmp_path / "empty.parquet") == said


@pytest.mark.parametrize("column", ["rows", "dim", "pooling_factor"])
def test_a_missing_column_is_named(csv_file, parquet_file, column: str) -> None:
    columns = {"rows": [100], "dim": [8], "pooling_factor": [1]}
    del columns[column]
    said = f": column '{column}' is missing; needed are rows, dim, pooling_factor."
    assert error_of(parquet_file(columns)) == said
    assert error_of(csv_file(pd.DataFrame(columns).to_csv(index=False))) == said


@pytest.mark.parametrize("column", ["rows", "dtype"])
def test_a_column_given_twice_is_refused(csv_file, column: str) -> None:
    text = f"rows,dim,pooling_factor,dtype,{column}\n100,8,1,fp32,{column}\n"
    assert error_of(csv_file(text)) == f": column '{column}' must be there once, not several times."


def test_a_row_with_more_cells_than_columns_is_refused(csv_file) -> None:
    assert error_of(csv_file(MINIMAL + "100,8,1\n1,000,8,1\n")) == (
        ", row 2: it must have at most 3 cells, one per column, not 4."
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (",8,1", "rows is missing; it must be a whole number from 1 to 1,000,000,000,000."),
        ("100", "dim is missing; it must be a multiple of 4 from 4 to 65,536."),
        (
            "100,8,",
            "pooling_factor is missing; it must be a positive number up to 1,000,000, "
            "or one per feature with '|' between them.",
        ),
    ],
)
def test_an_empty_cell_is_a_missing_value(csv_file, row: str, said: str) -> None:
    assert error_of(csv_file(MINIMAL + f"100,8,1\n{row}\n")) == f", row 2: {said}"


@pytest.mark.parametrize("rows", ["many", "10.5", "0", "-3", "nan", "inf", "1e13", "0x10"])
def test_rows_must_be_a_positive_whole_number(csv_file, rows: str) -> None:
    assert error_of(csv_file(f"# a comment\n{MINIMAL}100,8,1\n{rows},8,1\n")) == (
        f", row 2: rows must be a whole number from 1 to 1,000,000,000,000, not '{rows}'."
    )


@pytest.mark.parametrize("dim", ["wide", "0", "-4", "6", "8.5", "nan", "65540"])
def test_dim_must_be_a_multiple_of_4(csv_file, dim: str) -> None:
    assert error_of(csv_file(MINIMAL + f"100,{dim},1\n")) == (
        f", row 1: dim must be a multiple of 4 from 4 to 65,536, not '{dim}'."
    )


@pytest.mark.parametrize("factor", ["often", "0", "-1", "nan", "inf", "1|", "1|0", "1;10", "|"])
def test_pooling_factors_must_be_positive_and_finite(csv_file, factor: str) -> None:
    assert error_of(csv_file(MINIMAL + f"100,8,{factor}\n")) == (
        ", row 1: pooling_factor must be a positive number up to 1,000,000, "
        f"or one per feature with '|' between them, not '{factor}'."
    )


def test_a_parquet_list_of_pooling_factors_is_refused(parquet_file) -> None:
    columns = {"rows": [100], "dim": [8], "pooling_factor": [[1, 10]]}
    assert (
        "row 1: pooling_factor must be a positive number up to 1,000,000, or one per"
        in error_of(parquet_file(columns))
    )


@pytest.mark.parametrize("dtype", ["fp64", "float32", "FP16"])
def test_dtype_must_be_known(csv_file, dtype: str) -> None:
    assert error_of(csv_file(f"rows,dim,pooling_factor,dtype\n100,8,1,{dtype}\n")) == (
        f", row 1: dtype must be one of fp32, fp16, bf16, not '{dtype}'."
    )


def test_a_name_must_fit_into_a_parameter_name(csv_file) -> None:
    assert error_of(csv_file("name,rows,dim,pooling_factor\nuser.id,100,8,1\n")) == (
        ", row 1: name must be without '.', which torch reserves in parameter names, not 'user.id'."
    )


@pytest.mark.parametrize(("first", "second"), [("users", "users"), ("table_1", "")])
def test_names_must_be_unique(csv_file, first: str, second: str) -> None:
    text = f"name,rows,dim,pooling_factor\n{first},100,8,1\n{second},100,8,1\n"
    assert error_of(csv_file(text)) == (
        f", row 2: name must be unique, but row 1 is called '{first}' too."
    )

"""Embedding tables, and how they are read from a user's CSV or Parquet file."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar

from harness.contract import UsageError
from harness.model.files import read_file

T = TypeVar("T")

ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
SUFFIXES = (".csv", ".parquet")
COLUMNS = ("rows", "dim", "pooling_factor")
_KNOWN = (*COLUMNS, "name", "dtype")

# Wide of every published model; within them, a table's bytes fit the 64 bits that torch has.
MOST_ROWS = 10**12
MOST_DIM = 2**16
MOST_POOLING = 10**6
MOST_TABLES = 100_000


@dataclass(frozen=True, slots=True)
class Table:
    """An embedding table of shape (rows, dim), which one or more features look up.

    `pooling_factors` holds one figure per feature: the mean number of indices per sample.
    """

    name: str
    rows: int
    dim: int
    pooling_factors: tuple[float, ...]
    dtype: str = "fp32"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row's weights."""
        return self.dim * ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes of the weights, without optimizer state."""
        return self.rows * self.row_bytes

    @property
    def features(self) -> int:
        """How many features share the table."""
        return len(self.pooling_factors)


@dataclass(frozen=True, slots=True)
class _Row:
    file: str
    number: int
    cells: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.file}, row {self.number}"

    def read(self, field: str, convert: Callable[[str], T], allowed: str) -> T:
        text = self.cells.get(field, "")
        if not text:
            raise UsageError(f"{self}: {field} is missing; it must be {allowed}.")
        try:
            return convert(text)
        except ValueError:
            raise UsageError(f"{self}: {field} must be {allowed}, not '{text}'.") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # 1e6, and 1000.0 as pandas has it where the column also has an empty cell
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def _rows(text: str) -> int:
    rows = _whole(text)
    if not 1 <= rows <= MOST_ROWS:
        raise ValueError(text)
    return rows


def _dim(text: str) -> int:
    dim = _whole(text)
    if not 1 <= dim <= MOST_DIM or dim % 4:
        raise ValueError(text)
    return dim


def _pooling_factors(text: str) -> tuple[float, ...]:
    factors = tuple(float(part) for part in text.split("|"))
    if not all(0 < factor <= MOST_POOLING for factor in factors):
        raise ValueError(text)
    return factors


def _dtype(text: str) -> str:
    if text not in ITEM_BYTES:
        raise ValueError(text)
    return text


def _name(text: str) -> str:
    if "." in text:
        raise ValueError(text)
    return text


def _table(row: _Row) -> Table:
    return Table(
        name=row.read("name", _name, "without '.', which torch reserves in parameter names")
        if row.cells.get("name")
        else f"table_{row.number - 1}",
        rows=row.read("rows", _rows, f"a whole number from 1 to {MOST_ROWS:,}"),
        # fbgemm's kernels read four elements at a time.
        dim=row.read("dim", _dim, f"a multiple of 4 from 4 to {MOST_DIM:,}"),
        pooling_factors=row.read(
            "pooling_factor",
            _pooling_factors,
            f"a positive number up to {MOST_POOLING:,}, or one per feature with '|' between them",
        ),
        dtype=row.read("dtype", _dtype, f"one of {', '.join(ITEM_BYTES)}")
        if row.cells.get("dtype")
        else "fp32",
    )


def _parse_csv(data: bytes, file: str) -> tuple[list[str], list[_Row]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} cannot be read: a CSV file must be UTF-8 text.") from None
    lines = (line for line in io.StringIO(text, newline="") if not line.startswith("#"))
    try:
        header, *body = [cells for cells in csv.reader(lines) if any(cells)] or [[]]
    except csv.Error as error:
        raise UsageError(f"{file} cannot be read as CSV: {error}.") from None
    columns = [column.strip() for column in header]
    _check_number(len(body), file)
    rows = []
    for number, cells in enumerate(body, start=1):
        if any(cells[len(columns) :]):
            raise UsageError(
                f"{file}, row {number}: it must have at most {len(columns)} cells, "
                f"one per column, not {len(cells)}."
            )
        texts = chain((cell.strip() for cell in cells), repeat(""))
        rows.append(_Row(file, number, dict(zip(columns, texts, strict=False))))
    return columns, rows


def _parse_parquet(data: bytes, file: str) -> tuple[list[str], list[_Row]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(io.BytesIO(data)) as opened:
            columns = opened.schema_arrow.names
            _check_columns(columns, file)
            _check_number(opened.metadata.num_rows, file)
            held = opened.read([column for column in _KNOWN if column in columns])
            cells = [map(_as_text, held[column].to_pylist()) for column in held.column_names]
    except (pa.ArrowException, OSError, ValueError):
        raise UsageError(f"{file} cannot be read: it must be a Parquet file.") from None
    return columns, [
        _Row(file, number, dict(zip(held.column_names, row, strict=True)))
        for number, row in enumerate(zip(*cells, strict=True), start=1)
    ]


def _as_text(cell: object) -> str:
    return "" if cell is None or cell != cell else str(cell).strip()


def _check_number(rows: int, file: str) -> None:
    if rows > MOST_TABLES:
        raise UsageError(f"{file} lists {rows:,} tables; it must have {MOST_TABLES:,} at most.")


def _check_columns(columns: Iterable[str], file: str) -> None:
    found = list(columns)
    for column in COLUMNS:
        if column not in found:
            raise UsageError(
                f"{file}: column '{column}' is missing; needed are {', '.join(COLUMNS)}."
            )
    for column in _KNOWN:
        if found.count(column) > 1:
            raise UsageError(f"{file}: column '{column}' must be there once, not several times.")


def is_table_file(name: str) -> bool:
    """Whether a name is that of a user's file of tables, by its suffix."""
    return name.lower().endswith(SUFFIXES)


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file of tables.

    Raises:
        UsageError: the suffix is neither .csv nor .parquet, or the file cannot be opened.
    """
    if not is_table_file(str(path)):
        raise UsageError(f"{path}: a file of tables must end in {' or '.join(SUFFIXES)}.")
    return read_file(path)


def read_tables(path: str | Path) -> tuple[Table, ...]:
    """Read tables from a CSV or Parquet file, one row per table.

    Columns: `rows`; `dim` in elements; `pooling_factor` in indices per sample, `1|10` where two
    features share the table; optionally `name` (default `table_<i>`, from 0) and `dtype` (fp32,
    fp16 or bf16; default fp32). Other columns are ignored, and so are blank lines and lines that
    start with `#` in CSV.

    Raises:
        UsageError: the file or a cell cannot be used; names file, data row (from 1) and field.
    """
    return parse_tables(read_bytes(path), str(path))


def parse_tables(data: bytes, file: str) -> tuple[Table, ...]:
    """Return the tables in the content of a file, which is CSV or Parquet by its name's suffix.

    Raises:
        UsageError: as `read_tables`.
    """
    columns: list[str] = []
    rows: list[_Row] = []
    if data:
        parse = _parse_csv if file.lower().endswith(".csv") else _parse_parquet
        columns, rows = parse(data, file)
    if columns:
        _check_columns(columns, file)
    if not rows:
        raise UsageError(f"{file} lists no table; it must have one row per table.")
    tables = tuple(_table(row) for row in rows)
    first: dict[str, int] = {}
    for row, table in zip(rows, tables, strict=True):
        if table.name in first:
            raise UsageError(
                f"{row}: name must be unique, but row {first[table.name]} "
                f"is called '{table.name}' too."
            )
        first[table.name] = row.number
    return tables

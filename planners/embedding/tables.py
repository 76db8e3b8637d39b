"""Embedding tables, and how they are read from a user's CSV or Parquet file."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.contract import UsageError
from harness.model.files import read_file
from harness.model.ids import one_of

ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
SUFFIXES = (".csv", ".parquet")
COLUMNS = ("rows", "dim", "pooling_factor")

_Cells = Mapping[str, str]

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


def _whole(text: str, most: int, step: int = 1) -> int:
    try:
        number = int(text)
    except ValueError:  # 1e6, and 1000.0 as pandas has it where the column also has an empty cell
        if not float(text).is_integer():
            raise
        number = int(float(text))
    if not 1 <= number <= most or number % step:
        raise ValueError(text)
    return number


def _pooling_factors(text: str) -> tuple[float, ...]:
    factors = tuple(float(part) for part in text.split("|"))
    if not all(0 < factor <= MOST_POOLING for factor in factors):
        raise ValueError(text)
    return factors


def _name(text: str) -> str:
    if "." in text:
        raise ValueError(text)
    return text


# How the cells of a column are read, and in words what they may be.
_FIELDS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "name": (_name, "without '.', which torch reserves in parameter names"),
    "rows": (partial(_whole, most=MOST_ROWS), f"a whole number from 1 to {MOST_ROWS:,}"),
    # fbgemm's kernels read four elements at a time.
    "dim": (partial(_whole, most=MOST_DIM, step=4), f"a multiple of 4 from 4 to {MOST_DIM:,}"),
    "pooling_factor": (
        _pooling_factors,
        f"a positive number up to {MOST_POOLING:,}, or one per feature with '|' between them",
    ),
    "dtype": (one_of(ITEM_BYTES), f"one of {', '.join(ITEM_BYTES)}"),
}


def _table(cells: _Cells, number: int, file: str) -> Table:
    values: dict[str, Any] = {"name": f"table_{number - 1}"}
    for field, (convert, allowed) in _FIELDS.items():
        text = cells.get(field, "")
        try:
            if text:
                values[field] = convert(text)
            elif field in COLUMNS:
                raise UsageError(f"{file}, row {number}: {field} is missing; it must be {allowed}.")
        except ValueError:
            raise UsageError(
                f"{file}, row {number}: {field} must be {allowed}, not '{text}'."
            ) from None
    return Table(pooling_factors=values.pop("pooling_factor"), **values)


def _parse_csv(data: bytes, file: str) -> tuple[list[str], list[_Cells]]:
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
    for number, cells in enumerate(body, start=1):
        if any(cells[len(columns) :]):
            raise UsageError(
                f"{file}, row {number}: it must have at most {len(columns)} cells, "
                f"one per column, not {len(cells)}."
            )
    return columns, [dict(zip(columns, map(str.strip, cells), strict=False)) for cells in body]


def _parse_parquet(data: bytes, file: str) -> tuple[list[str], list[_Cells]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(io.BytesIO(data)) as opened:
            columns = opened.schema_arrow.names
            _check_columns(columns, file)
            _check_number(opened.metadata.num_rows, file)
            rows = opened.read([column for column in _FIELDS if column in columns]).to_pylist()
    except (pa.ArrowException, OSError, ValueError):
        raise UsageError(f"{file} cannot be read: it must be a Parquet file.") from None
    return columns, [{column: _as_text(cell) for column, cell in row.items()} for row in rows]


def _as_text(cell: object) -> str:
    return "" if cell is None or cell != cell else str(cell).strip()


def _check_number(rows: int, file: str) -> None:
    if rows > MOST_TABLES:
        raise UsageError(f"{file} lists {rows:,} tables; it must have {MOST_TABLES:,} at most.")


def _check_columns(columns: Sequence[str], file: str) -> None:
    for column in COLUMNS:
        if column not in columns:
            raise UsageError(
                f"{file}: column '{column}' is missing; needed are {', '.join(COLUMNS)}."
            )
    for column in _FIELDS:
        if columns.count(column) > 1:
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
    parse = _parse_csv if file.lower().endswith(".csv") else _parse_parquet
    columns, rows = parse(data, file) if data else ([], [])
    if columns:
        _check_columns(columns, file)
    if not rows:
        raise UsageError(f"{file} lists no table; it must have one row per table.")
    tables = tuple(_table(cells, number, file) for number, cells in enumerate(rows, start=1))
    first: dict[str, int] = {}
    for number, table in enumerate(tables, start=1):
        if first.setdefault(table.name, number) != number:
            raise UsageError(
                f"{file}, row {number}: name must be unique, but row {first[table.name]} "
                f"is called '{table.name}' too."
            )
    return tables

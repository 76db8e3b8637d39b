"""Reads and writes embedding tables as CSV or Parquet files."""

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from harness.contract import UsageError, read_file

ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
Lookup = Literal["pooled", "weighted", "sequence"]
SUFFIXES = (".csv", ".parquet")
COLUMNS = ("rows", "dim", "pooling_factor")

# Above every published model; within these limits, the bytes of a table fit 64 bits.
MOST_ROWS = 10**12
MOST_DIM = 2**16
MOST_POOLING = 10**6
MOST_TABLES = 100_000


@dataclass(frozen=True, slots=True)
class Table:
    """An embedding table of shape (rows, dim) that one or more features look up.

    A lookup is the sum or mean of a sample's rows (`pooled`), the same with a weight for each index
    (`weighted`), or each row by itself (`sequence`, of a torchrec EmbeddingCollection).
    """

    name: str
    rows: int
    dim: int
    pooling_factors: tuple[float, ...]  # mean number of indices per sample, by feature
    dtype: str = "fp32"
    lookup: Lookup = "pooled"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row's weights."""
        return self.dim * ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes of all weights, without optimizer state."""
        return self.rows * self.row_bytes

    @property
    def features(self) -> int:
        """The number of features that share the table."""
        return len(self.pooling_factors)

    @property
    def indices(self) -> float:
        """The mean number of rows looked up per sample."""
        return sum(self.pooling_factors)

    @property
    def sample_bytes(self) -> float:
        """The mean bytes looked up per sample."""
        return self.indices * self.row_bytes

    @property
    def pooling_text(self) -> str:
        """The pooling factors as text, separated by '|', as in files."""
        return "|".join(f"{factor!r}".removesuffix(".0") for factor in self.pooling_factors)


def lookup_of(is_pooled: bool, is_weighted: bool | None) -> Lookup:
    """Return the kind of lookup of a torchrec collection's tables."""
    if not is_pooled:
        return "sequence"
    return "weighted" if is_weighted else "pooled"


# fbgemm's kernels read four elements at a time.
_DIM = Meta(ge=4, le=MOST_DIM, multiple_of=4, description=f"a multiple of 4 from 4 to {MOST_DIM:,}")
_FACTORS = Meta(
    description=f"a positive number up to {MOST_POOLING:,}, or one per feature with '|' between "
    "them"
)
_NAME = Meta(pattern=r"^[^.]*$", description="without '.', which torch reserves in parameter names")


def one_of(words: Collection[str]) -> Meta:
    """Return the condition that a text is one of some words."""
    return Meta(pattern=rf"^({'|'.join(words)})\Z", description=f"one of {', '.join(words)}")


FIELDS: Mapping[str, Any] = {
    "name": Annotated[str, _NAME],
    "rows": Annotated[
        int, Meta(ge=1, le=MOST_ROWS, description=f"a whole number from 1 to {MOST_ROWS:,}")
    ],
    "dim": Annotated[int, _DIM],
    "pooling_factor": Annotated[
        tuple[Annotated[float, Meta(gt=0, le=MOST_POOLING)], ...], _FACTORS
    ],
    "dtype": Annotated[str, one_of(ITEM_BYTES)],
    "lookup": Annotated[str, one_of(get_args(Lookup))],
}
"""The type of each column, with its limits and a description of allowed values."""


def value_of(field: str, value: Any, place: str, kind: Any = None) -> Any:
    """Convert the value of a cell to the column's type, or to `kind` if given.

    Raises UsageError, with the place and the field, for an empty or invalid value.
    """
    kind = kind or FIELDS[field]
    allowed = kind.__metadata__[0].description
    if value == "":
        raise UsageError(f"{place}: {field} is missing; it must be {allowed}.")
    try:
        is_list = field == "pooling_factor" and isinstance(value, str)
        parts = [float(part) for part in value.split("|")] if is_list else value
        return msgspec.convert(parts, kind, strict=False)
    except ValueError:
        raise UsageError(f"{place}: {field} must be {allowed}, not '{value}'.") from None


def cells_of(
    data: bytes, file: str, *, is_parquet: bool, delimiters: str = ",", only: Collection[str] = ()
) -> Iterator[Sequence[object]]:
    """Return the header and then the rows of a CSV or Parquet file.

    Of a Parquet file only the columns `only` are read, or all if it is empty. The delimiter of a
    CSV file is the one most frequent in its header; blank lines and lines that start with `#` are
    skipped. Raises UsageError for an unreadable file, and for no rows or too many.
    """
    rows = _parquet_cells(data, file, only) if is_parquet else _csv_cells(data, file, delimiters)
    if len(rows) < 2:
        raise UsageError(f"{file} lists no table; it must have one row per table.")
    return iter(rows)


def as_text(cell: object) -> str:
    """Return a cell as text; None and NaN become an empty text."""
    return "" if cell is None or cell != cell else str(cell).strip()


def _csv_cells(data: bytes, file: str, delimiters: str) -> Sequence[Sequence[object]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} cannot be read: a CSV file must be UTF-8 text.") from None
    lines = [line for line in io.StringIO(text, newline="") if not line.startswith("#")]
    header = next(filter(str.strip, lines), "")
    delimiter = max(delimiters, key=header.count)
    try:
        rows = [cells for cells in csv.reader(lines, delimiter=delimiter) if any(cells)]
    except csv.Error as error:
        raise UsageError(f"{file} cannot be read as CSV: {error}.") from None
    _check_number(len(rows) - 1, file)
    for number, cells in enumerate(rows):
        if any(cells[len(rows[0]) :]):
            raise UsageError(
                f"{file}, row {number}: it must have at most {len(rows[0])} cells, "
                f"one per column, not {len(cells)}."
            )
    return rows


def _parquet_cells(data: bytes, file: str, only: Collection[str]) -> Sequence[Sequence[object]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(io.BytesIO(data)) as opened:
            columns = [name for name in opened.schema_arrow.names if not only or name in only]
            _check_number(opened.metadata.num_rows, file)
            content = opened.read(columns if only else None)
            return [columns, *zip(*(column.to_pylist() for column in content.columns), strict=True)]
    except (pa.ArrowException, OSError, ValueError):
        raise UsageError(f"{file} cannot be read: it must be a Parquet file.") from None


def _check_number(rows: int, file: str) -> None:
    if rows > MOST_TABLES:
        raise UsageError(f"{file} lists {rows:,} tables; it must have {MOST_TABLES:,} at most.")


def is_table_file(name: str) -> bool:
    """Return whether a file name ends in .csv or .parquet, as files of tables do."""
    return name.lower().endswith(SUFFIXES)


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file of tables; raises UsageError for another suffix."""
    if not is_table_file(str(path)):
        raise UsageError(f"{path}: a file of tables must end in {' or '.join(SUFFIXES)}.")
    return read_file(path)


def read_tables(path: str | Path) -> tuple[Table, ...]:
    """Read tables from a CSV or Parquet file, one row per table.

    Columns: `rows`; `dim` in elements; `pooling_factor` in indices per sample, `1|10` if two
    features share the table; optionally `name` (default `table_<i>`, from 0), `dtype` (fp32, fp16
    or bf16; default fp32) and `lookup` (pooled, weighted or sequence; default pooled). Other
    columns are ignored. In CSV files, so are blank lines and lines that start with `#`. Raises
    UsageError, with the file, the data row (from 1) and the field.
    """
    return parse_tables(read_bytes(path), str(path))


def parse_tables(data: bytes, file: str) -> tuple[Table, ...]:
    """Return the tables in `data`, the content of `file`; raises as `read_tables` does."""
    is_parquet = not file.lower().endswith(".csv")
    rows = cells_of(data, file, is_parquet=is_parquet, only=FIELDS)
    columns = [as_text(cell) for cell in next(rows)]
    for column in FIELDS:
        if column in COLUMNS and column not in columns:
            raise UsageError(
                f"{file}: column '{column}' is missing; needed are {', '.join(COLUMNS)}."
            )
        if columns.count(column) > 1:
            raise UsageError(f"{file}: column '{column}' must be there once, not several times.")
    tables: dict[str, Table] = {}
    for number, cells in enumerate(rows, start=1):
        place = f"{file}, row {number}"
        given = dict(zip(columns, map(as_text, cells), strict=False))
        values = {
            field: value_of(field, given.get(field, ""), place)
            for field in FIELDS
            if given.get(field) or field in COLUMNS
        }
        factors = values.pop("pooling_factor")
        table = Table(**{"name": f"table_{number - 1}", **values}, pooling_factors=factors)
        if table.name in tables:
            raise UsageError(
                f"{place}: name must be unique, but row {[*tables].index(table.name) + 1} is "
                f"called '{table.name}' too."
            )
        tables[table.name] = table
    return tuple(tables.values())


def content_of(tables: Sequence[Table], file: str) -> bytes:
    """Return the content of a file of tables: CSV, or Parquet if `file` ends in .parquet."""
    rows = [(t.name, t.rows, t.dim, t.pooling_text, t.dtype, t.lookup) for t in tables]
    if not file.lower().endswith(".parquet"):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([FIELDS, *rows])
        return text.getvalue().encode()
    import pyarrow as pa
    from pyarrow import parquet

    sink = io.BytesIO()
    columns = map(list, zip(*rows, strict=True))
    parquet.write_table(pa.table(dict(zip(FIELDS, columns, strict=True))), sink)
    return sink.getvalue()

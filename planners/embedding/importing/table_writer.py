"""Writes tables as the content of a file that `read_tables` reads."""

import csv
import io
from collections.abc import Sequence

from planners.embedding.tables import Table

_COLUMNS = ("name", "rows", "dim", "pooling_factor", "dtype")


def content_of(tables: Sequence[Table], file: str) -> bytes:
    """Return the content of a file of tables, CSV or Parquet by its name's suffix."""
    rows = [(each.name, each.rows, each.dim, each.pooling_text, each.dtype) for each in tables]
    if not file.lower().endswith(".parquet"):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *rows])
        return text.getvalue().encode()
    import pyarrow as pa
    from pyarrow import parquet

    sink = io.BytesIO()
    columns = map(list, zip(*rows, strict=True))
    parquet.write_table(pa.table(dict(zip(_COLUMNS, columns, strict=True))), sink)
    return sink.getvalue()

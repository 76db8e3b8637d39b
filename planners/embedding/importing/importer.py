"""Imports embedding tables from all supported formats."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.contract import Imported, Importing, ImportRequest, UsageError, unknown
from planners.embedding.importing import csv_parquet
from planners.embedding.importing.drafts import Draft, Notes, finished, sentences
from planners.embedding.inventory import inventory_of
from planners.embedding.tables.files import (
    FIELDS,
    SUFFIXES,
    content_of,
    is_table_file,
    parse_tables,
    value_of,
)

FORMATS = {
    "csv": "a CSV file with a row per table and columns of any usual name",
    "parquet": "the same in a Parquet file",
    "model": "module:function that makes a torchrec model",
}
_BY_SUFFIX = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def read(request: ImportRequest) -> Imported:
    """Return an imported source as the content of a file of tables, with notes on assumptions.

    Raises UsageError for a source that cannot be used, or an unknown format, field or column.
    """
    if not is_table_file(request.target):
        raise UsageError(f"{request.target}: a file of tables must end in {' or '.join(SUFFIXES)}.")
    for field in (*request.columns, *request.assumed):
        if field not in FIELDS:
            raise unknown("field", field, FIELDS)
    kind = _format(request)
    if request.columns and kind not in ("csv", "parquet"):
        raise UsageError(f"--column is for CSV and Parquet files; {request.source} has no columns.")
    if "name" in request.assumed:
        raise UsageError("A name cannot be assumed; tables without one are numbered.")
    notes = Notes()
    tables = finished(_drafts(request, kind, notes), request.source, notes)
    content = content_of(tables, request.target)
    if parse_tables(content, request.target) != tables:  # every written file can be read
        raise AssertionError(f"{request.source} reads otherwise once it is written")
    return Imported(
        content,
        inventory_of(tables, f"Tables of {request.source}"),
        *map(sentences, (notes.assumed, notes.changed, notes.left_out)),
    )


IMPORTING = Importing(formats=FORMATS, suffixes=SUFFIXES, fields=tuple(FIELDS), read=read)


def _format(request: ImportRequest) -> str:
    if request.format:
        if request.format not in FORMATS:
            raise unknown("format", request.format, FORMATS)
        return request.format
    if _FUNCTION.fullmatch(request.source):
        return "model"
    suffix = Path(request.source).suffix.lower()
    if suffix not in _BY_SUFFIX:
        raise UsageError(
            f"The format of {request.source} cannot be told from its name; give it with --format "
            "csv or parquet, or import a model, such as one of TorchEasyRec, by module:function."
        )
    return _BY_SUFFIX[suffix]


def _drafts(request: ImportRequest, kind: str, notes: Notes) -> Iterator[Draft]:
    if kind != "model":
        return csv_parquet.drafts_of(request, kind == "parquet", notes)
    if not _FUNCTION.fullmatch(request.source):
        raise UsageError(f"'{request.source}' must be module:function, such as my_model:build.")
    from planners.embedding.importing import torchrec_model

    return torchrec_model.drafts_of(request.source, _pooling_factor(request.assumed), notes)


def _pooling_factor(assumed: Mapping[str, str]) -> float:
    found: tuple[float, ...] = value_of(
        "pooling_factor", assumed.get("pooling_factor", "1"), "--assume"
    )
    if len(found) != 1:
        raise UsageError("--assume: pooling_factor must be one number.")
    return found[0]
